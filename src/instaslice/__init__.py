"""InstaSlice: cuts GPUs into slices on Kubernetes at the moment a pod asks for one."""

__version__ = "0.1.0"
