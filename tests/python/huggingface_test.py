"""Loads directories of `denseformer export --format huggingface` with transformers and compares them with what
`denseformer generate --json --logprobs 0` printed to DIRECTORY.json.

    huggingface_test.py DIRECTORY...
"""
import json
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def close(a, b, what):
    difference = (torch.as_tensor(a) - torch.as_tensor(b)).abs().max().item()
    assert difference < 2e-5, f"{what}: differs by {difference}"
    return difference


def test(directory):
    with open(directory.rstrip("/") + ".json") as file:
        expected = json.load(file)
    sample = expected["samples"][0]
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True)
    model.eval()
    prompt = tokenizer(expected["prompt"], return_tensors="pt")
    start = prompt["input_ids"].shape[1]
    assert start == expected["prompt_tokens"], "the tokenizers differ"

    # Greedy generation, with the KV cache and without.
    count = len(sample["tokens"])
    for use_cache in (True, False):
        out = model.generate(**prompt, max_new_tokens=count, do_sample=False, use_cache=use_cache)
        tokens = out[0, start:].tolist()
        assert tokens == sample["tokens"][:len(tokens)], f"use_cache {use_cache}: {tokens}"
    assert tokenizer.decode(tokens) == sample["text"], tokenizer.decode(tokens)

    # The probability of each token of that text.
    whole = torch.cat([prompt["input_ids"], torch.tensor([sample["tokens"]])], dim=1)
    with torch.no_grad():
        logits = model(whole).logits
        scores = logits.log_softmax(-1)[0]
        worst = close([scores[start + i - 1, token].item() for i, token in enumerate(sample["tokens"])],
                      [entry["logprob"] for entry in sample["logprobs"]], "log-probabilities")
        # Padding on the left changes nothing, whatever the tokens there.
        padded = torch.cat([torch.full((1, 3), 5), whole], dim=1)
        mask = torch.cat([torch.zeros(1, 3, dtype=torch.long), torch.ones_like(whole)], dim=1)
        close(model(padded, attention_mask=mask).logits[:, 3:], logits, "left padding")
        loss = model(whole, labels=whole).loss.item()
        close(loss, -scores[:-1].gather(1, whole[0, 1:, None]).mean(), "loss")

    # What transformers writes, it reads again.
    with tempfile.TemporaryDirectory() as copy:
        model.save_pretrained(copy)
        again = AutoModelForCausalLM.from_pretrained(copy, trust_remote_code=True)
        with torch.no_grad():
            close(again(whole).logits, logits, "saved and loaded")
    # A model from scratch: averages pass the newest output on.
    fresh = AutoModelForCausalLM.from_config(model.config, trust_remote_code=True)
    newest = 0 if model.config.mixer_norm == "prepost" else 1
    for average in fresh.dwa_modules.alphas.values():
        assert (average.weight[:, -1] == newest).all(), average.weight
        assert average.weight[:, :-1].abs().sum() == 0, average.weight
    for mixer in fresh.dwa_modules.mixers.values():
        for parameter in ("w2.weight", "query", "gate"):
            values = dict(mixer.named_parameters()).get(parameter)
            assert values is None or not values.any(), parameter
        if model.config.mixer == "dynamic":
            ratio = mixer.w1.weight.std().item() * model.config.n_embd ** 0.5
            assert 0.5 < ratio < 2, f"w1 has {ratio} of its standard deviation"
    print(f"{directory}: {model.config.dwa}, {count} tokens, log-probabilities within {worst:.1e}")


torch.set_num_threads(1)
for directory in sys.argv[1:]:
    test(directory)
