"""Runs the `openai` package and lm-evaluation-harness, unmodified, against `denseformer serve`.

    serve_clients.py PROGRAM RUN TEXT

By hand, where both are installed (pip install openai 'lm-eval[api]'). The harness's bits per byte of TEXT must be those of
`denseformer eval` over the same windows. The server listens on loopback and ends with this script.
"""
import array
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

from openai import APIStatusError, BadRequestError, OpenAI


class Server:
    """The program on a free port, with `options`."""

    def __init__(self, program, run, *options):
        self.process = subprocess.Popen([program, "serve", run, "--port", "0", "--precision", "fp32", *options],
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        self.url = re.search(r"http://\S+", line).group()
        while "ready" not in line:
            line = self.process.stderr.readline()
            assert line, "the server ended"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(timeout=60) == 0, "the server did not end well"

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.url + path, data) as answer:
            return json.load(answer)


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def test_openai(server):
    client = OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    name = client.models.list().data[0].id
    expect(client.models.retrieve(name).id == name, "models.list and retrieve")
    options = {"model": name, "prompt": "The license", "max_tokens": 12, "seed": 7, "temperature": 0.8}
    whole = client.completions.create(**options, n=3, logprobs=2)
    expect(len(whole.choices) == 3 and whole.usage.prompt_tokens > 0, "completions.create with n")
    expect(len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens / 3, "logprobs")
    texts = ["", "", ""]
    usage = None
    for chunk in client.completions.create(**options, n=3, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    expect(texts == [choice.text for choice in whole.choices], "a stream has the same texts")
    expect(usage.total_tokens == whole.usage.total_tokens, "usage of a stream")
    alone = client.completions.create(**{**options, "seed": 9})
    expect(alone.choices[0].text == texts[2], "choice 2 alone, by its seed")
    extra = client.completions.create(**options, extra_body={"top_k": 5, "min_p": 0.1, "ignore_eos": True})
    expect(extra.usage.completion_tokens == 12, "extra_body: top_k, min_p, ignore_eos")
    try:
        client.completions.create(**{**options, "temperature": -1})
        expect(False, "a wrong temperature is an error")
    except BadRequestError as error:
        expect(error.param == "temperature", f"BadRequestError names the parameter: {error.message}")
    try:
        client.chat.completions.create(model=name, messages=[{"role": "user", "content": "x"}])
        expect(False, "no chat without a template")
    except APIStatusError as error:
        expect(error.status_code == 400 and "template" in error.message, "no chat without a template")


def test_openai_chat(program, run, scratch):
    template, keys = os.path.join(scratch, "chat.toml"), os.path.join(scratch, "keys")
    with open(template, "w") as file:
        file.write('user = "Q: {content}\\n"\nassistant = "A: {content}\\n"\ngeneration = "A:"\nstop = ["\\nQ:"]\n')
    with open(keys, "w") as file:
        file.write("secret\n")
    with Server(program, run, "--chat-template", template, "--api-key-file", keys) as server:
        client = OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0)
        name = client.models.list().data[0].id
        options = {"model": name, "messages": [{"role": "user", "content": "Why?"}], "max_completion_tokens": 10, "seed": 1}
        answer = client.chat.completions.create(**options, logprobs=True, top_logprobs=3)
        expect(len(answer.choices[0].logprobs.content[0].top_logprobs) == 3, "chat.completions.create with logprobs")
        streamed = "".join(chunk.choices[0].delta.content or ""
                           for chunk in client.chat.completions.create(**options, stream=True))
        expect(streamed == answer.choices[0].message.content, "chat: a stream has the same text")
        try:
            OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()
            expect(False, "a wrong key")
        except APIStatusError as error:
            expect(error.status_code == 401, "a wrong key is 401")


def whole_windows(server, text, window):
    """A begin of `text` whose tokens, after the end-of-text token, fill windows of `window` tokens; and these tokens."""
    tokens = server.call("/tokenize", {"prompt": text})["tokens"]
    for count in range(len(tokens) // window, 0, -1):
        part = server.call("/detokenize", {"tokens": tokens[:count * window]})["prompt"]
        if server.call("/tokenize", {"prompt": part})["tokens"] == tokens[:count * window]:
            return part, tokens[:count * window]
    sys.exit("FAILED: the text is too short")


def test_harness(program, run, server, text, scratch):
    os.environ["HF_HUB_OFFLINE"] = "1"
    from lm_eval import simple_evaluate
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    from lm_eval.api.instance import Instance

    model = server.call("/v1/models")["data"][0]
    context = model["max_model_len"]
    # The prompt of a window is its tokens and the one that follows.
    window = context - 1
    part, tokens = whole_windows(server, text, window)
    end = server.call("/tokenizer_info")["eos_token_id"]
    stream = os.path.join(scratch, "stream.bin")
    with open(stream, "wb") as file:
        array.array("H", [end] + tokens).tofile(file)
    expected = json.loads(subprocess.run(
        [program, "eval", run, "--data", stream, "--seq-len", str(window), "--precision", "fp32", "--json", "--quiet"],
        check=True, capture_output=True, text=True).stdout)

    lm = LocalCompletionsAPI(base_url=server.url + "/v1/completions", model=model["id"], tokenizer_backend="remote",
                             max_length=context + 1, batch_size=4)  # of which it takes 1 away
    data = os.path.join(scratch, "data.jsonl")
    with open(data, "w") as file:
        file.write(json.dumps({"text": part}) + "\n")
    task = {"task": "own_text", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": data}},
            "test_split": "test", "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "bits_per_byte"}, {"metric": "byte_perplexity"}]}
    results = simple_evaluate(model=lm, tasks=[task], bootstrap_iters=0)["results"]["own_text"]
    bits = results["bits_per_byte,none"]
    ours = expected["loss"] * expected["tokens"] / math.log(2) / len(part.encode())
    print(f"bits per byte over {len(tokens)} tokens: harness {bits:.9f}, denseformer eval {ours:.9f}")
    expect(abs(bits - ours) < 1e-5 * ours, "lm-evaluation-harness has the bits per byte of denseformer eval")

    requests = [Instance("loglikelihood", {}, arguments, 0) for arguments in [(part[:60], part[60:90]), (part[:30], " zebra")]]
    for (logprob, greedy), request in zip(lm.loglikelihood(requests), requests):
        expect(logprob < 0 and greedy in (True, False), f"loglikelihood {logprob:.3f}, greedy {greedy}")
    until = Instance("generate_until", {}, (part[:60], {"until": ["\n", "<|endoftext|>"], "max_gen_toks": 20}), 0)
    generated = lm.generate_until([until])[0]
    greedy = server.call("/v1/completions", {"prompt": part[:60], "max_tokens": 20, "temperature": 0, "stop": "\n"})
    expect(generated == greedy["choices"][0]["text"], "generate_until")
    continued = [(part[:60], generated)] if generated else []
    for logprob, is_greedy in lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in continued]):
        print(f"note: log-likelihood of the greedy text {logprob:.3f}, greedy {is_greedy}")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    program, run, text_path = sys.argv[1:]
    with open(text_path, encoding="utf-8") as file:
        text = file.read()
    with tempfile.TemporaryDirectory() as scratch:
        with Server(program, run) as server:
            test_openai(server)
            test_harness(program, run, server, text, scratch)
        test_openai_chat(program, run, scratch)


main()
