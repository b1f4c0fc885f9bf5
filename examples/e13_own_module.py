"""E13. My own modules in the loop: plain nn.Modules become nodes, a local function is called where it stands."""

import pellucid as pl
import torch


def make_modules(d_model: int):
    torch.manual_seed(0)
    adapter = torch.nn.Sequential(
        torch.nn.Linear(d_model, 32), torch.nn.GELU(), torch.nn.Linear(32, d_model)
    )
    gate = torch.nn.Sequential(torch.nn.Linear(d_model, 1), torch.nn.Sigmoid())
    memory = torch.randn(100, d_model)  # what a vector index would hold
    return adapter.eval(), gate.eval(), memory


def main(lm: pl.LM, prompt="The capital of France is"):
    """Returns the last logits with the adapter in block 10 and the four nearest memories."""
    adapter, gate, memory = make_modules(lm.info["d_model"])

    def nearest(x: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x.float(), memory).topk(4, largest=False).indices

    with lm.trace(prompt) as t:
        h = lm.blocks[10].resid_post
        h[:] = h + gate(h) * adapter(h)
        near = t.call(nearest, h[:, -1], like=torch.empty(1, 4, dtype=torch.long))
        logits = lm.logits[:, -1]
        t.save([near, logits])
    return logits, near


if __name__ == "__main__":
    logits, near = main(pl.load("smollm2"))
    print(logits.topk(3), near)
