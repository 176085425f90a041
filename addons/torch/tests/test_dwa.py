"""Values and gradients of DWAModules and of the operator; run with PYTHONPATH at the built package."""

import copy
import os
import sys
import threading
import time
import unittest

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import denseformer
from denseformer import DWAModules, dwa
from reference import AccumulatorDWA, formula
from small_models import Blocks, randomize, run

PATTERNS = ["1x1", "2x1", "4x1", "3x2", "4x5", "last:2", "final", "grouped:2x3"]


class FormulaDWA(nn.Module):
    """The same interface, straight from the formula."""

    def __init__(self, module):
        super().__init__()
        self.sources, self.alphas = module.sources, copy.deepcopy(module.alphas)

    def init_accumulators(self, x):
        self.outputs = [x]

    def forward(self, x, block_idx):
        self.outputs.append(x)
        row = self.sources[block_idx + 1]
        if not row:
            return x
        return formula(row, self.outputs, self.alphas[block_idx].weight.view(-1).to(x.dtype))


class ValuesTest(unittest.TestCase):
    def check(self, pattern, dtype, tolerance, n_blocks=12, x=None):
        module = randomize(DWAModules(n_blocks, pattern=pattern))
        for alpha in module.alphas:
            if alpha is not None:
                alpha.weight.data /= alpha.weight.shape[1]
        model = Blocks(module, n_blocks).to(dtype)
        other = Blocks(FormulaDWA(module), n_blocks).to(dtype)
        if x is None:
            x = torch.randn(3, 5, 6)
        x = x.to(dtype)
        got, want = run(model, x), run(other, x)
        torch.testing.assert_close(got[0], want[0], rtol=tolerance, atol=tolerance)
        scale = want[1].float().abs().max().item()
        torch.testing.assert_close(got[1], want[1], rtol=tolerance, atol=tolerance * scale)
        for name, grad in want[2].items():
            scale = max(1.0, grad.float().abs().max().item())
            torch.testing.assert_close(
                got[2][name], grad, rtol=tolerance, atol=tolerance * scale, msg=f"{pattern} {name}"
            )

    def test_fp32_of_every_pattern(self):
        for pattern in PATTERNS:
            with self.subTest(pattern):
                self.check(pattern, torch.float32, 2e-5)

    def test_double_of_every_pattern(self):
        for pattern in PATTERNS:
            with self.subTest(pattern):
                self.check(pattern, torch.float64, 1e-12)

    def test_bf16_of_every_pattern(self):
        for pattern in PATTERNS:
            with self.subTest(pattern):
                self.check(pattern, torch.bfloat16, 0.1)

    def test_48_blocks(self):
        self.check("1x1", torch.float32, 2e-5, n_blocks=48)

    def test_sources_as_lists(self):
        lists = [[0, 1], [], [0, 2, 3], [4], [1, 2, 5]]
        self.check(lists, torch.float32, 2e-5, n_blocks=5)

    def test_tensors_that_are_not_contiguous(self):
        x = torch.randn(6, 5, 3).transpose(0, 2)
        self.assertFalse(x.is_contiguous())
        self.check("2x1", torch.float32, 2e-5, x=x)

    def test_fp16(self):
        module = randomize(DWAModules(4)).half()
        outputs = [torch.randn(3, 8).half() for _ in range(5)]
        module.init_accumulators(outputs[0])
        for i in range(4):
            y = module(outputs[i + 1], i)
            self.assertEqual(y.dtype, torch.float16)
            want = formula(range(i + 2), outputs, module.alphas[i].weight.view(-1))
            torch.testing.assert_close(y, want)

    def test_bf16_average_is_rounded_once(self):
        if not denseformer.has_kernels:
            self.skipTest("built without kernels")
        module = randomize(DWAModules(8)).bfloat16()
        outputs = [torch.randn(64).bfloat16() for _ in range(9)]
        module.init_accumulators(outputs[0])
        with torch.no_grad():
            for i in range(8):
                if i == 0:
                    module.init_accumulators(outputs[0])
                y = module(outputs[i + 1], i)
                weights = module.alphas[i].weight.view(-1).double()
                want = formula(range(i + 2), [o.double() for o in outputs], weights)
                error = (y.double() - want).abs()
                self.assertTrue((error <= want.abs() * 2**-8 + 1e-6).all())

    def test_scalars_and_empty_tensors(self):
        for shape in [(), (0, 4), (1,)]:
            module = DWAModules(2)
            x = torch.ones(shape)
            module.init_accumulators(x)
            module(x, 0)
            self.assertEqual(module(x, 1).shape, x.shape)

    def test_initial_weights_change_nothing(self):
        x = torch.randn(3, 6)
        model = Blocks(DWAModules(5), 5)
        plain = x
        for block in model.blocks:
            plain = plain + torch.tanh(block(plain))
        self.assertTrue(torch.equal(model(x), plain))


class OperatorTest(unittest.TestCase):
    def setUp(self):
        if not denseformer.has_kernels:
            self.skipTest("built without kernels")

    def test_gradcheck(self):
        sources = [torch.randn(2, 3, dtype=torch.double, requires_grad=True) for _ in range(4)]
        alphas = torch.randn(4, dtype=torch.double, requires_grad=True)
        function = lambda a, *s: dwa(s, a)  # noqa: E731
        self.assertTrue(torch.autograd.gradcheck(function, (alphas, *sources)))
        self.assertTrue(torch.autograd.gradgradcheck(function, (alphas, *sources)))

    def test_values_and_gradients(self):
        for dtype, tolerance in [(torch.float32, 1e-5), (torch.bfloat16, 0.03)]:
            for n in [1, 2, 4, 7]:
                sources = [torch.randn(9, 33, dtype=dtype, requires_grad=True) for _ in range(n)]
                alphas = torch.randn(1, n, requires_grad=True)
                gradient = torch.randn(9, 33, dtype=dtype)
                y = dwa(sources, alphas)
                self.assertEqual(y.dtype, dtype)
                got = torch.autograd.grad(y, sources + [alphas], gradient)
                wide = [s.detach().double().requires_grad_() for s in sources]
                wide_alphas = alphas.detach().double().requires_grad_()
                z = formula(range(n), wide, wide_alphas[0])
                want = torch.autograd.grad(z, wide + [wide_alphas], gradient.double())
                torch.testing.assert_close(y.double(), z, rtol=tolerance, atol=tolerance)
                for g, w in zip(got[:-1], want[:-1]):
                    torch.testing.assert_close(g.double(), w, rtol=tolerance, atol=tolerance)
                torch.testing.assert_close(
                    got[-1].double(), want[-1], rtol=tolerance, atol=30 * tolerance
                )

    def test_shapes_without_data(self):
        sources = [torch.empty(4, 5, device="meta") for _ in range(3)]
        y = torch.ops.denseformer.dwa(sources, torch.empty(3, device="meta"))
        self.assertEqual((y.shape, y.device.type), (torch.Size([4, 5]), "meta"))

    def test_errors(self):
        x = torch.ones(2)
        for sources, message in [
            ([], "no sources"),
            ([x], "3 alphas for 1 sources"),
            ([x, x, torch.ones(3)], "different shape"),
        ]:
            with self.assertRaisesRegex(RuntimeError, message):
                torch.ops.denseformer.dwa(sources, torch.ones(3))


class GradientTest(unittest.TestCase):
    def test_gradcheck_of_the_module(self):
        module = randomize(DWAModules(4, 2, 1)).double()
        scales = torch.randn(4, dtype=torch.double)

        def function(x, *weights):
            module.init_accumulators(x)
            for i in range(4):
                x = module(torch.sin(scales[i] * x), i)
            return x

        x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(function, (x, *module.parameters())))

    def test_backward_twice_and_in_part(self):
        module = randomize(DWAModules(6))
        model = Blocks(module, 6)
        x = torch.randn(2, 6, requires_grad=True)
        middle = []
        module.init_accumulators(x)
        y = x
        for i, block in enumerate(model.blocks):
            y = module(y + torch.tanh(block(y)), i)
            middle.append(y)
        (first,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        (part,) = torch.autograd.grad(middle[2].sum(), x, retain_graph=True)
        (second,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        self.assertTrue(torch.equal(first, second))
        other = Blocks(FormulaDWA(module), 6)
        other.dwa_modules.init_accumulators(x)
        z = x
        for i in range(3):
            z = other.dwa_modules(z + torch.tanh(other.blocks[i](z)), i)
        (want,) = torch.autograd.grad(z.sum(), x)
        torch.testing.assert_close(part, want)

    def test_frozen_weights_and_frozen_input(self):
        x = torch.randn(2, 6)
        model = Blocks(randomize(DWAModules(4)), 4)
        want = run(model, x)
        model.zero_grad(set_to_none=True)
        for p in model.dwa_modules.parameters():
            p.requires_grad_(False)
        model(x).pow(2).sum().backward()
        for name, grad in want[2].items():
            if "blocks" in name:
                torch.testing.assert_close(dict(model.named_parameters())[name].grad, grad)
        for p in model.dwa_modules.parameters():
            self.assertIsNone(p.grad)

    def test_second_derivative_of_the_fused_pass_is_an_error(self):
        if not denseformer.has_kernels:
            self.skipTest("built without kernels")
        x = torch.randn(2, 6, requires_grad=True)
        y = Blocks(DWAModules(3), 3)(x)
        with self.assertRaisesRegex(RuntimeError, "differentiated once"):
            torch.autograd.grad(y.sum(), x, create_graph=True)


class PaperTest(unittest.TestCase):
    def test_state_dict_of_the_papers_module_loads_and_gives_the_same(self):
        for dilation, period in [(1, 1), (4, 1), (4, 5), (3, 2)]:
            with self.subTest(f"{dilation}x{period}"):
                theirs = Blocks(randomize(AccumulatorDWA(11, dilation, period)), 11)
                ours = Blocks(DWAModules(11, dilation, period), 11)
                ours.load_state_dict(theirs.state_dict())
                self.assertEqual(
                    list(ours.dwa_modules.state_dict()), list(theirs.dwa_modules.state_dict())
                )
                x = torch.randn(2, 3, 6)
                got, want = run(ours, x), run(theirs, x)
                torch.testing.assert_close(got[0], want[0])
                scale = want[1].abs().max().item()
                torch.testing.assert_close(got[1], want[1], rtol=1e-4, atol=1e-5 * scale)
                for name in want[2]:
                    scale = max(1.0, want[2][name].abs().max().item())
                    torch.testing.assert_close(
                        got[2][name], want[2][name], rtol=1e-4, atol=1e-5 * scale
                    )


def cpu_seconds_of_other_threads():
    ticks = 0
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != threading.get_native_id():
            with open(f"/proc/self/task/{thread}/stat") as stat:
                ticks += sum(int(field) for field in stat.read().rpartition(")")[2].split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


@unittest.skipUnless(denseformer.has_kernels, "plain operations")
@unittest.skipUnless(len(os.sched_getaffinity(0)) > 1, "one core")
class ThreadsTest(unittest.TestCase):
    def test_the_operator_uses_those_of_pytorch(self):
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            sources = [torch.randn(1024, 768) for _ in range(8)]
            weights = torch.randn(8)
            dwa(sources, weights)
            time.sleep(0.5)  # threads that wait for work spin for a while, then sleep
            others, begin = cpu_seconds_of_other_threads(), time.thread_time()
            while time.thread_time() - begin < 0.5:
                dwa(sources, weights)
            self.assertGreater(cpu_seconds_of_other_threads() - others, 0.05)
        finally:
            torch.set_num_threads(before)


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, kernels: {denseformer.has_kernels}", file=sys.stderr)
    unittest.main()
