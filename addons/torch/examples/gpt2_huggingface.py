"""A Hugging Face GPT-2 becomes a DenseFormer: gpt2_huggingface.py [MODEL] [--dilation K] [--period P].

The weights of MODEL (a name or a directory; by default a small random one is made) are loaded into
a subclass that has depth-weighted averages. They begin as the identity, so that the model computes
what GPT-2 does, and are trained with the rest from there.
"""

import argparse
import tempfile

import torch
from denseformer import DWAModules
from transformers import GPT2Config, GPT2LMHeadModel


class DenseGPT2(GPT2LMHeadModel):
    """GPT-2 with an average after every `period`-th block.

    The model's own forward pass calls the blocks, so the averages join it by hooks: the embedding
    is what the first block reads, and the output of a block is replaced by the average after it.
    """

    def __init__(self, config):
        super().__init__(config)
        self.dwa_modules = DWAModules(
            config.n_layer, getattr(config, "dwa_dilation", 1), getattr(config, "dwa_period", 1)
        )
        blocks = self.transformer.h
        blocks[0].register_forward_pre_hook(self._begin, with_kwargs=True)
        for i, block in enumerate(blocks):
            block.register_forward_hook(self._average(i))

    def _begin(self, block, args, kwargs):
        x = args[0] if args else kwargs["hidden_states"]
        self.dwa_modules.init_accumulators(x)

    def _average(self, i):
        def hook(block, args, output):
            if isinstance(output, tuple):
                return (self.dwa_modules(output[0], block_idx=i),) + tuple(output[1:])
            return self.dwa_modules(output, block_idx=i)

        return hook


def small_gpt2(directory):
    torch.manual_seed(0)
    config = GPT2Config(n_layer=4, n_head=2, n_embd=16, vocab_size=100, n_positions=32)
    GPT2LMHeadModel(config).save_pretrained(directory)
    return directory


def convert(model, dilation, period):
    """The model as it is, and as a DenseFormer with the same weights."""
    plain = GPT2LMHeadModel.from_pretrained(model)
    config = GPT2Config.from_pretrained(model)
    config.dwa_dilation, config.dwa_period = dilation, period
    dense = DenseGPT2.from_pretrained(model, config=config)
    return plain.eval(), dense.eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("--dilation", type=int, default=1)
    parser.add_argument("--period", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        plain, dense = convert(args.model or small_gpt2(scratch), args.dilation, args.period)
        tokens = torch.randint(0, plain.config.vocab_size, (2, 16))
        with torch.no_grad():
            difference = (plain(tokens).logits - dense(tokens).logits).abs().max().item()
        print(f"largest difference of the logits before training: {difference}")
        if difference != 0:
            raise SystemExit("the averages are not the identity")
        dense.train()
        optimizer = torch.optim.AdamW(dense.parameters(), lr=1e-3)
        for step in range(3):
            loss = dense(tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step}: loss {loss.item():.4f}")
        moved = max((a.weight[0, :-1].abs().max().item()
                     for a in dense.dwa_modules.alphas if a is not None), default=0.0)
        if moved == 0:
            raise SystemExit("the averages did not train")
        dense.save_pretrained(scratch + "/dense")
        again = DenseGPT2.from_pretrained(scratch + "/dense")
        for name, value in dense.state_dict().items():
            if not torch.equal(value, again.state_dict()[name]):
                raise SystemExit(f"{name} did not come back")
        print("saved and loaded again: the same weights")


if __name__ == "__main__":
    main()
