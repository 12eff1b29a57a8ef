"""PyTorch on the GPU that it sees: fills memory with a number of its own, waits for the others, looks again.

One line of JSON when the memory is filled, one after a line of input came.
"""

import json
import sys

import torch

GIB = 1 << 30
number, fill = float(sys.argv[1]), int(sys.argv[2]) * GIB

free, total = torch.cuda.mem_get_info()
block = torch.full((fill // 4,), number, dtype=torch.float32, device="cuda")
square = torch.rand(2048, 2048, device="cuda")
product = (square @ square).sum().item()
properties = torch.cuda.get_device_properties(0)
print(
    json.dumps(
        {
            "devices": torch.cuda.device_count(),
            "name": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "total": total,
            "free": free,
            "computed": product > 0,
        }
    ),
    flush=True,
)
sys.stdin.readline()
free, total = torch.cuda.mem_get_info()
try:
    torch.empty(total, dtype=torch.uint8, device="cuda")
    refused = False
except torch.cuda.OutOfMemoryError:
    refused = True
kept = block.min().item() == number == block.max().item()
print(json.dumps({"used": total - free, "kept": kept, "refused": refused}), flush=True)
