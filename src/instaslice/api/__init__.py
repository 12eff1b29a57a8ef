"""Our Kubernetes types and names: what users, the webhook, the controller and the agent have in common."""
