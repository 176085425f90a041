"""Tests of DepthMixer; run with PYTHONPATH at the built package.

The comparison with the engine wants the path of the program `denseformer` in DENSEFORMER_PROGRAM.
"""

import copy
import importlib.util
import json
import math
import os
import pickle
import subprocess
import tempfile
import threading
import unittest

import torch
from denseformer import DepthMixer, DWAModules, Streams, export_run, mix
from torch import nn
from torch.utils.checkpoint import checkpoint

MIXERS = ["static", "dynamic", "prepost", "attention", "attnres"]
STREAMS = ["r", "rv", "rqkv"]
TOPOLOGIES = ["1x1", "2x3", "grouped:2x3", "last:2", "final", "final:2"]
TOPOLOGIES += ["mask:11/0/0111/0/001001/1000001", [[0, 1], [], [1, 2, 3], [0, 4], [0, 2, 5], [6]]]
BLOCKS, WIDTH = 6, 10


def make(topology, mixer, streams, seed=None, blocks=BLOCKS, width=WIDTH):
    norm = "prepost" if mixer == "prepost" else "none"
    mixer = "dynamic" if mixer == "prepost" else mixer
    module = DepthMixer(blocks, topology, mixer, streams, width=width, norm=norm)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.5)
    return module


class Blocks(nn.Module):
    """A small model whose blocks read every stream."""

    def __init__(self, dwa_modules, width=WIDTH):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(BLOCKS)])
        self.dwa_modules = dwa_modules

    def forward(self, x):
        self.dwa_modules.init_accumulators(x)
        y = x
        for i, block in enumerate(self.blocks):
            r, q, k, v = y if isinstance(y, tuple) else (y, y, y, y)
            y = self.dwa_modules(r + torch.tanh(block(v + 0.5 * k)) * torch.sigmoid(q), block_idx=i)
        return y[0] if isinstance(y, tuple) else y


class Formula(nn.Module):
    """The same interface from the definition: a loop over streams and sources."""

    def __init__(self, module):
        super().__init__()
        self.own = copy.deepcopy(module)

    def init_accumulators(self, x):
        self.x, self.y = [x], [x]

    def forward(self, x, block_idx):
        m, i = self.own, block_idx + 1
        self.x.append(x)
        rows = m.sources[i]
        if not rows:
            self.y.append(x)
            return (x, x, x, x)
        out = []
        for c in range(1 if i == BLOCKS else len(m.streams)):
            if m.mixer in ("attention", "attnres"):
                own = m.mixers[block_idx]
                v = [self.x[j] - (self.y[j - 1] if j > 0 else 0) for j in rows]
                e = [(self.rms(t) * own.query[c]).sum(-1, keepdim=True).exp() for t in v]
                total = sum(w * t for w, t in zip(e, v)) / sum(e)
                out.append(total if m.mixer == "attnres" else x + own.gate[c] * total)
                continue
            b = m.alphas[block_idx].weight[c]
            read = [self.x[j] for j in rows]
            a = [b[n] for n in range(len(rows))]
            if m.mixer == "dynamic":
                own = m.mixers[block_idx]
                h = torch.einsum("...d,hd->...h", self.rms(x), own.w1.weight)
                h = 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
                z = torch.einsum("...h,nh->...n", h, own.w2.weight)
                a = [b[n] + z[..., c * len(rows) + n, None] for n in range(len(rows))]
            if m.norm == "prepost":
                read = [self.rms(t) for t in read]
            total = sum(w * t for w, t in zip(a, read))
            if m.norm == "prepost":
                total = x + own.post.weight[c] * self.rms(total)
            out.append(total)
        self.y.append(out[0])
        return tuple(out) if len(out) == 4 else (out[0], out[0], out[0], out[-1])

    @staticmethod
    def rms(x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def run(model, x):
    """Output, gradient of the input, gradients of all parameters by their last names."""
    x = x.clone().requires_grad_()
    y = model(x)
    y.double().pow(2).sum().backward()
    names = {n.replace("dwa_modules.own.", "dwa_modules."): p for n, p in model.named_parameters()}
    return y.detach(), x.grad, {n: p.grad for n, p in names.items()}


class ValuesTest(unittest.TestCase):
    def check(self, module, dtype, tolerance):
        torch.manual_seed(7)
        x = torch.randn(3, 5, WIDTH, dtype=torch.float64)
        want = run(Blocks(Formula(module)).double(), x)
        got = run(Blocks(copy.deepcopy(module)).to(dtype), x.to(dtype))
        pairs = [("y", got[0], want[0]), ("dx", got[1], want[1])]
        pairs += [(name, got[2][name], grad) for name, grad in want[2].items()]
        self.assertEqual(set(got[2]), set(want[2]))
        # Some gradients are small differences of large terms, as those of a sum that is normalized.
        largest = max(b.abs().max().item() for _, _, b in pairs if b is not None)
        for name, a, b in pairs:
            if b is None:  # q, k and v of the module before the last block, say
                self.assertIsNone(a, name)
                continue
            scale = max(0.1 * largest, b.abs().max().item())
            error = (a.double() - b).abs().max().item() / scale
            self.assertLess(error, tolerance, f"{name} of {module}")

    def test_every_mixer_with_every_stream_and_topology(self):
        for mixer in MIXERS:
            for streams in STREAMS:
                for topology in TOPOLOGIES:
                    with self.subTest(mixer=mixer, streams=streams, topology=topology):
                        module = make(topology, mixer, streams, seed=3)
                        self.check(module, torch.float32, 2e-4)
                        self.check(module, torch.float64, 1e-10)

    def test_bf16(self):
        for mixer in MIXERS:
            module = make("1x1", mixer, "rv", seed=3).to(torch.bfloat16)
            x = torch.randn(3, 5, WIDTH)
            got = run(Blocks(copy.deepcopy(module)).to(torch.bfloat16), x.to(torch.bfloat16))[0]
            want = run(Blocks(Formula(module)).double(), x.to(torch.bfloat16).double())[0]
            error = (got.double() - want).norm() / want.norm()
            self.assertLess(error.item(), 0.1, mixer)

    def test_starts_as_the_model_without_it(self):
        x = torch.randn(4, 7, WIDTH)
        plain = Blocks(make([[]] * BLOCKS, "static", "r"))(x)
        for mixer in MIXERS:
            for streams in STREAMS:
                for topology in TOPOLOGIES:
                    got = Blocks(make(topology, mixer, streams))(x)
                    same = torch.equal(got, plain)
                    self.assertEqual(same, mixer != "attnres", (mixer, streams, topology))

    def test_static_r_is_dwa_modules(self):
        module = make("2x1", "static", "r", seed=1)
        other = DWAModules(BLOCKS, 2, 1)
        other.load_state_dict(module.state_dict())
        x = torch.randn(2, 3, WIDTH)
        torch.testing.assert_close(Blocks(module)(x), Blocks(other)(x))


class OperatorTest(unittest.TestCase):
    def test_gradients(self):
        for streams in (1, 2, 3, 4):
            sources = [torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True) for _ in range(3)]
            weights = torch.randn(2, 3, 3, streams, dtype=torch.float64, requires_grad=True)
            call = lambda w, *s: mix(s, w)  # noqa: E731
            self.assertTrue(torch.autograd.gradcheck(call, (weights, *sources)))
            self.assertTrue(torch.autograd.gradgradcheck(call, (weights, *sources)))

    def test_fused_against_double(self):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
            for width in (1, 3, 16, 33, 100):
                for streams in (1, 2, 3, 4):
                    sources = [torch.randn(7, width).to(dtype).requires_grad_() for _ in range(4)]
                    weights = torch.randn(7, 4, streams).to(dtype).requires_grad_()
                    wide = [t.detach().double().requires_grad_() for t in (*sources, weights)]
                    y, want = mix(sources, weights), mix(wide[:-1], wide[-1])
                    dy = torch.randn_like(want)
                    y.backward(dy.to(dtype))
                    want.backward(dy.to(dtype).double())
                    self.assertEqual(y.dtype, dtype)
                    pairs = [(y, want)] + [(a.grad, b.grad) for a, b in zip((*sources, weights), wide)]
                    for a, b in pairs:
                        error = (a.double() - b).abs().max() / b.abs().max()
                        self.assertLess(error.item(), tolerance, (dtype, width, streams))

    def test_layouts(self):
        x = torch.randn(5, 6, 4).transpose(0, 1)
        w = torch.randn(2, 1, 6, 5).permute(2, 3, 0, 1)
        want = w[..., 0, 0, None] * x + w[..., 1, 0, None] * x
        torch.testing.assert_close(mix([x, x], w)[0], want)

    def test_wrong_shapes(self):
        x = torch.randn(5, 4)
        with self.assertRaisesRegex(RuntimeError, "denseformer::mix: "):
            mix([x, x], torch.randn(5, 3, 1))
        with self.assertRaisesRegex(RuntimeError, "denseformer::mix: "):
            mix([], torch.randn(5, 0, 1))


class ModuleTest(unittest.TestCase):
    def test_streams(self):
        module = make("2x2", "dynamic", "rv", seed=1)
        x = torch.randn(2, WIDTH)
        module.init_accumulators(x)
        first = module(x + 1, block_idx=0)
        self.assertIsInstance(first, Streams)
        for stream in first:  # no average there
            self.assertTrue(torch.equal(stream, x + 1))
        second = module(x + 2, block_idx=1)
        self.assertTrue(torch.equal(second.q, second.r) and torch.equal(second.k, second.r))
        self.assertFalse(torch.equal(second.v, second.r))
        self.assertTrue(module.has_module(1))
        self.assertFalse(module.has_module(0))

    def test_copies_and_files(self):
        module = make("1x1", "attention", "rqkv", seed=1)
        module.init_accumulators(torch.ones(1, WIDTH))
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            x = torch.randn(2, WIDTH)
            self.assertTrue(torch.equal(Blocks(other)(x), Blocks(copy.deepcopy(module))(x)))

    def test_reset(self):
        for mixer in MIXERS:
            module = make("1x1", mixer, "rv", seed=1)
            module.reset_parameters()
            x = torch.randn(2, WIDTH)
            plain = Blocks(make([[]] * BLOCKS, "static", "r"))(x)
            self.assertEqual(torch.equal(Blocks(module)(x), plain), mixer != "attnres")

    def test_errors(self):
        cases = [
            (dict(mixer="dinamic"), "mixer is 'dinamic', expected static, dynamic, attention or attnres"),
            (dict(streams="rk"), "streams is 'rk', expected r, rv or rqkv"),
            (dict(norm="post"), "norm is 'post', expected none or prepost"),
            (dict(mixer="attention", norm="prepost", width=4), "'prepost' goes with mixer 'dynamic'"),
            (dict(mixer="dynamic"), "mixer 'dynamic' needs the width of the model, got None"),
        ]
        for options, message in cases:
            with self.assertRaisesRegex(ValueError, message):
                DepthMixer(4, "1x1", **options)
        with self.assertRaises(ValueError):
            DepthMixer(4, "1y1")
        module = make("1x1", "static", "rv")
        with self.assertRaisesRegex(RuntimeError, "block_idx 0 without a pass"):
            module(torch.ones(1, WIDTH), block_idx=0)
        module.init_accumulators(torch.ones(1, WIDTH))
        with self.assertRaisesRegex(RuntimeError, "block_idx 1 out of order, expected 0"):
            module(torch.ones(1, WIDTH), block_idx=1)
        with self.assertRaisesRegex(RuntimeError, "but init_accumulators was given"):
            module(torch.ones(2, WIDTH), block_idx=0)


def nodes(y):
    """How often each operation stands in the graph of y."""
    seen, left, counts = set(), [y.grad_fn], {}
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        counts[node.name()] = counts.get(node.name(), 0) + 1
        left += [after for after, _ in node.next_functions]
    return counts


class PassTest(unittest.TestCase):
    """The state of a pass belongs to the pass."""

    def test_what_modules_read_of_an_output_is_made_once(self):
        x = torch.randn(2, WIDTH, requires_grad=True)
        # 2x3 reads X_1 and X_3, then X_0, X_2, X_4 and X_6.
        for topology, outputs in (("1x1", BLOCKS + 1), ("2x3", 6), ("final:2", 4)):
            for mixer in ("attention", "attnres"):
                counts = nodes(Blocks(make(topology, mixer, "r", seed=1))(x))
                self.assertEqual(counts["RsqrtBackward0"], outputs, (topology, mixer))
                self.assertEqual(counts["SubBackward0"], outputs - 1)  # V_0 is X_0
        counts = nodes(Blocks(make("1x1", "prepost", "r", seed=1))(x))
        self.assertEqual(counts["RsqrtBackward0"], 2 * BLOCKS + 1)  # of sources and of sums

    def test_nothing_is_left_on_the_module(self):
        for mixer in MIXERS:
            model = Blocks(make("1x1", mixer, "rv", seed=1))
            before = set(vars(model.dwa_modules))
            model(torch.randn(2, WIDTH))
            self.assertEqual(model.dwa_modules._passes, {})
            self.assertEqual(set(vars(model.dwa_modules)), before)

    def test_tensors_of_the_model_are_not_modified(self):
        for mixer in MIXERS:
            module = make("1x1", mixer, "r", seed=1)
            outputs = [torch.randn(2, WIDTH) for _ in range(BLOCKS + 1)]
            copies = [x.clone() for x in outputs]
            module.init_accumulators(outputs[0])
            ys = [module(outputs[i + 1], i) for i in range(BLOCKS)]
            for x, copy_of_x in zip(outputs, copies):
                self.assertTrue(torch.equal(x, copy_of_x))
            for y in ys:
                self.assertNotIn(y.data_ptr(), [x.data_ptr() for x in outputs])

    def test_interleaved_passes(self):
        for mixer in MIXERS:
            module = make("1x1", mixer, "r", seed=1)
            inputs = [torch.randn(2, WIDTH), torch.randn(3, WIDTH)]
            xs, want = [x.clone().requires_grad_() for x in inputs], []
            for x in xs:
                module.init_accumulators(x)
                for i in range(BLOCKS):
                    x = module(torch.sin(x), i)
                want.append(x)
            torch.cat(want).pow(2).sum().backward()
            again = [x.clone().requires_grad_() for x in inputs]
            got, passes = again, [module.init_accumulators(x) for x in again]
            for i in range(BLOCKS):
                got = [module(torch.sin(x), i, accumulators=p) for x, p in zip(got, passes)]
            torch.cat(got).pow(2).sum().backward()
            for pair in zip(got + [x.grad for x in again], want + [x.grad for x in xs]):
                torch.testing.assert_close(*pair, rtol=0, atol=0)
            self.assertEqual(module._passes, {})

    def test_threads(self):
        model = Blocks(make("1x1", "attention", "rv", seed=1))
        inputs = [torch.randn(n + 1, WIDTH) for n in range(4)]
        want, failures = [model(x) for x in inputs], []

        def work(n):
            try:
                for _ in range(10):
                    torch.testing.assert_close(model(inputs[n]), want[n], rtol=0, atol=0)
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_all_orders_of_gradients_in_double(self):
        for mixer in MIXERS:
            module = make("last:1", mixer, "r", seed=1, blocks=3, width=2).double()

            def function(x, *weights):
                module.init_accumulators(x)
                for i in range(3):
                    x = module(torch.sin(x), i)
                return x

            x = torch.randn(1, 2, dtype=torch.double, requires_grad=True)
            self.assertTrue(torch.autograd.gradcheck(function, (x, *module.parameters())))
            self.assertTrue(torch.autograd.gradgradcheck(function, (x, *module.parameters())))

    def test_backward_twice_and_in_part(self):
        for mixer in MIXERS:
            module = make("1x1", mixer, "r", seed=1)
            x = torch.randn(2, WIDTH, requires_grad=True)
            module.init_accumulators(x)
            ys = [x]
            for i in range(BLOCKS):
                ys.append(module(torch.sin(ys[-1]), i))
            (first,) = torch.autograd.grad(ys[-1].sum(), x, retain_graph=True)
            (part,) = torch.autograd.grad(ys[3].sum(), x, retain_graph=True)
            (second,) = torch.autograd.grad(ys[-1].sum(), x)
            self.assertTrue(torch.equal(first, second))
            module.init_accumulators(x)
            y = x
            for i in range(3):
                y = module(torch.sin(y), i)
            self.assertTrue(torch.equal(torch.autograd.grad(y.sum(), x)[0], part))

    def test_checkpoints(self):
        """Around the blocks, and around blocks and averages."""
        for mixer in MIXERS:
            module = make("2x1", mixer, "r", seed=1)
            data, results = torch.randn(2, WIDTH), []
            for averages, checkpointed in ((False, False), (False, True), (True, True)):
                x = data.clone().requires_grad_()
                module.zero_grad(set_to_none=True)
                passed, y = module.init_accumulators(x), x

                def step(y, i):
                    y = torch.sin(y) * torch.cos(y)
                    return module(y, i, accumulators=passed) if averages else y

                for i in range(BLOCKS):
                    y = checkpoint(step, y, i, use_reentrant=False) if checkpointed else step(y, i)
                    y = y if averages else module(y, i)
                y.pow(2).sum().backward()
                results.append([y, x.grad] + [p.grad for p in module.parameters()])
            for other in results[1:]:
                for got, want in zip(other, results[0]):
                    torch.testing.assert_close(got, want, rtol=0, atol=0)

    def test_a_reentrant_checkpoint_around_averages_is_an_error(self):
        module = make("1x1", "attention", "r")
        x = torch.randn(2, WIDTH, requires_grad=True)
        passed = module.init_accumulators(x)
        with self.assertRaisesRegex(RuntimeError, "use_reentrant=False"):
            checkpoint(lambda x: module(x, 0, accumulators=passed), x, use_reentrant=True)

    def test_modified_in_place(self):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                module = make("1x2", "static", "r")
                module.init_accumulators(torch.ones(1, WIDTH))
                y = module(torch.ones(1, WIDTH), 0)
                y += 1
                with self.assertRaisesRegex(
                    RuntimeError, "the output of block_idx 0 was modified in place before block_idx 1"
                ):
                    module(y.clone(), 1)
                module = make("1x1", "attention", "r")
                module.init_accumulators(torch.ones(1, WIDTH))
                y = module(torch.ones(1, WIDTH), 0)
                y += 1
                with self.assertRaisesRegex(RuntimeError, "residual stream that block_idx 1 was"):
                    module(y, 1)

    def test_inference_mode(self):
        for mixer in MIXERS:
            model = Blocks(make("1x1", mixer, "rv", seed=1))
            x = torch.randn(2, WIDTH)
            with torch.inference_mode():
                y = model(x)
            self.assertTrue(torch.equal(y, model(x)))


def example():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "gpt.py")
    spec = importlib.util.spec_from_file_location("gpt", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class EngineTest(unittest.TestCase):
    """The GPT of the example with a mixer: the program finds the same loss."""

    def model(self, gpt, dwa_modules):
        class Block(gpt.Block):
            def __init__(self, after):
                super().__init__()
                mixed = after is not None and dwa_modules.has_module(after)
                if mixed and "k" in dwa_modules.streams:
                    self.ln_k = gpt.norm()
                if mixed and "v" in dwa_modules.streams:
                    self.ln_v = gpt.norm()

            def forward(self, r, q, k, v):
                q = self.ln_1(q)
                inputs = [q]
                inputs.append(self.ln_k(k) if hasattr(self, "ln_k") else q)
                inputs.append(self.ln_v(v) if hasattr(self, "ln_v") else q)
                parts = zip(inputs, self.attn.c_attn.weight.chunk(3))
                qkv = torch.cat([x @ weight.t() for x, weight in parts], -1)
                x = r + self.attend(qkv)
                return x + self.mlp(self.ln_2(x))

            def attend(self, qkv):
                batch, length, _ = qkv.shape
                q, k, v = (
                    part.reshape(batch, length, gpt.HEADS, -1).transpose(1, 2)
                    for part in qkv.split(gpt.WIDTH, dim=-1)
                )
                attn = self.attn
                scores = attn.rotary(q) @ attn.rotary(k).transpose(2, 3)
                scores = scores / math.sqrt(gpt.WIDTH // gpt.HEADS)
                future = torch.ones(length, length, dtype=torch.bool).triu(1)
                mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
                return attn.c_proj(mixed.transpose(1, 2).reshape(batch, length, gpt.WIDTH))

        class Model(gpt.DenseFormer):
            def __init__(self):
                super().__init__("1x1")
                self.dwa_modules = dwa_modules
                blocks = [Block(i - 1 if i > 0 else None) for i in range(gpt.BLOCKS)]
                self.transformer.h = nn.ModuleList(blocks)

            def forward(self, ids):
                x = self.transformer.wte(ids)
                self.dwa_modules.init_accumulators(x)
                y = (x, x, x, x)
                for i, block in enumerate(self.transformer.h):
                    y = self.dwa_modules(block(*y), block_idx=i)
                    y = y if isinstance(y, tuple) else (y, y, y, y)
                return self.transformer.ln_f(y[0]) @ self.transformer.wte.weight.t()

        return Model()

    def test_the_program_finds_the_same_loss(self):
        program = os.environ.get("DENSEFORMER_PROGRAM", "")
        if not os.path.exists(program):
            self.skipTest("DENSEFORMER_PROGRAM does not name the program denseformer")
        gpt = example()
        for mixer, streams, topology in (
            ("static", "rqkv", "1x1"),
            ("dynamic", "rv", "2x1"),
            ("prepost", "r", "1x1"),
            ("attention", "rqkv", "1x2"),
            ("attnres", "rv", "last:2"),
        ):
            with self.subTest(mixer), tempfile.TemporaryDirectory() as folder:
                mixer_module = make(topology, mixer, streams, 5, gpt.BLOCKS, gpt.WIDTH)
                model = self.model(gpt, mixer_module)
                data = torch.arange(10 * gpt.LENGTH + 1) * 37 % 256
                path = os.path.join(folder, "val.bin")
                data.numpy().astype("<u2").tofile(path)
                export_run(
                    model,
                    os.path.join(folder, "run"),
                    n_head=gpt.HEADS,
                    seq_len=gpt.LENGTH,
                    dwa=topology,
                    mixer=mixer_module.mixer,
                    streams=streams,
                    mixer_norm=mixer_module.norm,
                )
                with torch.no_grad():
                    want = gpt.loss_of(model, data.unfold(0, gpt.LENGTH + 1, gpt.LENGTH)).item()
                result = subprocess.run(
                    [program, "eval", os.path.join(folder, "run"), "--json", "--quiet"]
                    + ["--data", path, "--precision", "fp32"],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
                self.assertAlmostEqual(json.loads(result)["loss"], want, delta=5e-6)


if __name__ == "__main__":
    unittest.main()
