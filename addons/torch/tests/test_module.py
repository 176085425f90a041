"""DWAModules as a PyTorch module: its state, checkpointing, errors, several processes, torch.compile, initialization;
run with PYTHONPATH at the built package."""

import copy
import gc
import io
import os
import pickle
import sys
import tempfile
import threading
import unittest
import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import denseformer
from denseformer import DWAModules, dwa
from small_models import Blocks, randomize, run


class StateTest(unittest.TestCase):
    def test_nothing_is_left_after_a_pass(self):
        model = Blocks(DWAModules(4), 4)
        before = set(vars(model.dwa_modules))
        x = torch.randn(2, 6, requires_grad=True)
        y = model(x)
        self.assertEqual(model.dwa_modules._passes, {})
        self.assertEqual(set(vars(model.dwa_modules)), before)
        y.sum().backward()
        kept = weakref.ref(y)
        del y
        gc.collect()
        self.assertIsNone(kept())

    def test_memory_goes_with_the_graph(self):
        class Probe(torch.autograd.Function):
            alive = 0

            @staticmethod
            def forward(ctx, x):
                Probe.alive += 1
                ctx.token = weakref.finalize(ctx, Probe.gone)
                return x.clone()

            @staticmethod
            def gone():
                Probe.alive -= 1

            @staticmethod
            def backward(ctx, g):
                return g

        module = DWAModules(3)
        for backward in [True, False]:
            x = torch.randn(2, 6, requires_grad=True)
            module.init_accumulators(x)
            y = x
            for i in range(3):
                y = module(Probe.apply(y), i)
            if backward:
                y.sum().backward()
            del x, y
            gc.collect()
            self.assertEqual(Probe.alive, 0)

    def test_interleaved_passes(self):
        module = randomize(DWAModules(3))
        xs = [torch.randn(2, 6), torch.randn(4, 6)]
        want = []
        for x in xs:
            module.init_accumulators(x)
            for i in range(3):
                x = module(torch.sin(x), i)
            want.append(x)
        passes = [module.init_accumulators(x) for x in xs]
        for i in range(3):
            xs = [module(torch.sin(x), i, accumulators=p) for x, p in zip(xs, passes)]
        for got, x in zip(xs, want):
            self.assertTrue(torch.equal(got, x))
        self.assertEqual(module._passes, {})

    def test_threads(self):
        model = Blocks(randomize(DWAModules(6)), 6)
        inputs = [torch.randn(n + 1, 6) for n in range(4)]
        want = [model(x) for x in inputs]
        failures = []

        def work(n):
            for _ in range(20):
                if not torch.equal(model(inputs[n]), want[n]):
                    failures.append(n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])
        self.assertEqual(model.dwa_modules._passes, {})

    def test_blanket_initialization_of_linear_layers(self):
        model = Blocks(DWAModules(4), 4)

        def init(m):
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight)

        model.apply(init)
        for alpha in model.dwa_modules.alphas:
            self.assertEqual(alpha.weight[0, -1], 1)
            self.assertEqual(alpha.weight.sum(), 1)

    def test_save_load_copy_pickle(self):
        model = Blocks(randomize(DWAModules(5, 2, 1)), 5)
        x = torch.randn(2, 6)
        want = model(x)
        model.dwa_modules.init_accumulators(x)  # an open pass does not go along
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        fresh = Blocks(DWAModules(5, 2, 1), 5)
        fresh.load_state_dict(torch.load(file))
        for other in [fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]:
            self.assertTrue(torch.equal(other(x), want))

    def test_autocast(self):
        model = Blocks(randomize(DWAModules(4)), 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(torch.randn(2, 6))
        self.assertEqual(y.dtype, torch.float32)

    def test_inference_mode(self):
        model = Blocks(randomize(DWAModules(4)), 4)
        x = torch.randn(2, 6)
        with torch.inference_mode():
            y = model(x)
        self.assertTrue(torch.equal(y, model(x)))


class CheckpointTest(unittest.TestCase):
    def check(self, forward):
        model = Blocks(randomize(DWAModules(5)), 5)
        x = torch.randn(2, 6)
        want = run(model, x)
        model.zero_grad()
        x = x.requires_grad_()
        y = forward(model, x)
        y.pow(2).sum().backward()
        torch.testing.assert_close(y, want[0])
        torch.testing.assert_close(x.grad, want[1])
        for name, p in model.named_parameters():
            torch.testing.assert_close(p.grad, want[2][name])

    def test_around_the_blocks(self):
        for reentrant in [True, False]:

            def forward(model, x):
                model.dwa_modules.init_accumulators(x)
                for i, block in enumerate(model.blocks):
                    step = lambda x, block=block: x + torch.tanh(block(x))  # noqa: E731
                    x = checkpoint(step, x, use_reentrant=reentrant)
                    x = model.dwa_modules(x, i)
                return x

            self.check(forward)

    def test_around_blocks_and_averages(self):
        def forward(model, x):
            acc = model.dwa_modules.init_accumulators(x)

            def step(x, i):
                x = x + torch.tanh(model.blocks[i](x))
                return torch.sin(model.dwa_modules(x, i, accumulators=acc)).asin()

            for i in range(5):
                x = checkpoint(step, x, i, use_reentrant=False)
            return x

        model = Blocks(randomize(DWAModules(5)), 5)
        for p in model.dwa_modules.parameters():
            p.data *= 0.05
        x = torch.randn(2, 6) * 0.1
        want_x = x.clone().requires_grad_()
        acc = model.dwa_modules.init_accumulators(want_x)
        y = want_x
        for i in range(5):
            y = y + torch.tanh(model.blocks[i](y))
            y = torch.sin(model.dwa_modules(y, i, accumulators=acc)).asin()
        y.pow(2).sum().backward()
        want = {n: p.grad.clone() for n, p in model.named_parameters()}
        model.zero_grad()
        x.requires_grad_()
        forward(model, x).pow(2).sum().backward()
        torch.testing.assert_close(x.grad, want_x.grad)
        for name, p in model.named_parameters():
            torch.testing.assert_close(p.grad, want[name])

    def test_reentrant_checkpoint_around_averages_is_an_error(self):
        if not denseformer.has_kernels:
            self.skipTest("built without kernels")
        module = DWAModules(2)
        x = torch.randn(2, 6, requires_grad=True)
        acc = module.init_accumulators(x)
        with self.assertRaisesRegex(RuntimeError, "use_reentrant=False"):
            checkpoint(lambda x: module(x, 0, accumulators=acc), x, use_reentrant=True)


class ErrorTest(unittest.TestCase):
    def test_wrong_calls(self):
        module = DWAModules(3)
        x = torch.randn(2, 6)
        with self.assertRaisesRegex(RuntimeError, r"call init_accumulators\(x\) first"):
            module(x, 0)
        module.init_accumulators(x)
        with self.assertRaisesRegex(RuntimeError, "block_idx 1 out of order, expected 0"):
            module(x, 1)
        with self.assertRaisesRegex(RuntimeError, "block_idx 3, expected 0 to 2"):
            module(x, 3)
        with self.assertRaisesRegex(RuntimeError, r"gave .*\[2, 7\].* was given .*\[2, 6\]"):
            module(torch.randn(2, 7), 0)
        with self.assertRaisesRegex(RuntimeError, "block_idx 0 gave"):
            module(x.double(), 0)
        module(x, 0)
        with self.assertRaisesRegex(RuntimeError, "block_idx 0 out of order, expected 1"):
            module(x, 0)

    def test_source_modified_in_place(self):
        if not denseformer.has_kernels:
            self.skipTest("built without kernels")
        module = DWAModules(3)
        x = torch.randn(2, 6)
        module.init_accumulators(x)
        y = module(torch.sin(x), 0)
        x += 1
        with self.assertRaisesRegex(RuntimeError, "the embedding was modified in place"):
            module(torch.sin(y), 1)

    def test_wrong_patterns(self):
        for arguments, message in [
            (dict(n_blocks=0), "n_blocks is 0"),
            (dict(n_blocks=2, dilation=0), "dilation is 0"),
            (dict(n_blocks=2, pattern="what"), "depth pattern 'what'"),
            (dict(n_blocks=2, pattern=[[0, 1]]), "sources of 1 blocks, expected 2"),
            (dict(n_blocks=2, pattern=[[0], [2]]), "sources .0. after block 1"),
        ]:
            with self.assertRaisesRegex(ValueError, message):
                DWAModules(**arguments)


def _train_in_process(rank, world, file, results):
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + file, rank=rank, world_size=world
    )
    model = nn.parallel.DistributedDataParallel(Blocks(DWAModules(4), 4))
    torch.manual_seed(0)
    data = torch.randn(2, 3, 6)
    for _ in range(2):  # the second step finds parameters that took no part in the first
        model(data[rank]).pow(2).mean().backward()
    results[rank] = [p.grad.tolist() for p in model.module.dwa_modules.parameters()]
    torch.distributed.destroy_process_group()


class DistributedTest(unittest.TestCase):
    def test_distributed_data_parallel(self):
        if not torch.distributed.is_available():
            self.skipTest("this PyTorch has no torch.distributed")
        with tempfile.TemporaryDirectory() as folder:
            manager = torch.multiprocessing.Manager()
            results = manager.dict()
            torch.multiprocessing.spawn(
                _train_in_process, (2, os.path.join(folder, "store"), results), nprocs=2
            )
            self.assertEqual(results[0], results[1])
            model = Blocks(DWAModules(4), 4)
            torch.manual_seed(0)
            for _ in range(2):
                model(torch.randn(2, 3, 6)).pow(2).mean().backward()
                torch.manual_seed(0)
            for got, p in zip(results[0], model.dwa_modules.parameters()):
                torch.testing.assert_close(torch.tensor(got), p.grad)


class CompileTest(unittest.TestCase):
    def setUp(self):
        if not hasattr(torch, "compile"):
            self.skipTest(f"PyTorch {torch.__version__} has no torch.compile")

    def test_no_graph_breaks_and_the_same_values(self):
        for backend in ["aot_eager", "inductor"]:
            for pattern in ["1x1", "4x1", "2x3"]:
                with self.subTest(f"{backend} {pattern}"):
                    torch._dynamo.reset()
                    model = Blocks(randomize(DWAModules(6, pattern=pattern)), 6)
                    x = torch.randn(2, 6)
                    want = run(model, x)
                    model.zero_grad()
                    compiled = torch.compile(model, fullgraph=True, backend=backend)
                    for _ in range(2):
                        model.zero_grad()
                        got = run(compiled, x)
                        torch.testing.assert_close(got[0], want[0])
                        torch.testing.assert_close(got[1], want[1], rtol=1e-4, atol=1e-4)
                    self.assertEqual(model.dwa_modules._passes, {})

    def test_operator_in_a_graph(self):
        if not denseformer.has_kernels:
            self.skipTest("built without kernels")
        sources = [torch.randn(3, 4, requires_grad=True) for _ in range(3)]
        alphas = torch.randn(3, requires_grad=True)
        compiled = torch.compile(
            lambda s, a: torch.ops.denseformer.dwa(s, a) * 2, fullgraph=True, backend="aot_eager"
        )
        got = torch.autograd.grad(compiled(sources, alphas).sum(), sources + [alphas])
        want = torch.autograd.grad((dwa(sources, alphas) * 2).sum(), sources + [alphas])
        for g, w in zip(got, want):
            torch.testing.assert_close(g, w)

    def test_opcheck(self):
        if not hasattr(torch.library, "opcheck") or not denseformer.has_kernels:
            self.skipTest(f"PyTorch {torch.__version__} has no torch.library.opcheck")
        sources = [torch.randn(3, 4, requires_grad=True) for _ in range(3)]
        torch.library.opcheck(
            torch.ops.denseformer.dwa.default, (sources, torch.randn(3, requires_grad=True))
        )


class Initialization(unittest.TestCase):
    """Frameworks that build models without memory leave the identity, never what lay there."""

    def identity(self, module):
        for alpha in module.alphas:
            if alpha is not None:
                expected = torch.zeros_like(alpha.weight)
                expected[0, -1] = 1
                self.assertTrue(torch.equal(alpha.weight, expected), alpha.weight)

    def test_to_empty(self):
        module = randomize(DWAModules(4))
        module.to_empty(device="cpu")
        self.identity(module)
        meta = DWAModules(4).to("meta")
        self.assertTrue(meta.alphas[0].weight.is_meta)
        meta.to_empty(device="cpu")
        self.identity(meta)

    def test_moves_keep_the_values(self):
        module = randomize(DWAModules(4))
        before = [alpha.weight.detach().clone() for alpha in module.alphas]
        module.double().float().to("cpu")
        for value, alpha in zip(before, module.alphas):
            self.assertTrue(torch.equal(value, alpha.weight))

    def test_empty_memory_in_place_of_a_missing_key(self):
        module = DWAModules(3).to("meta")
        for alpha in module.alphas:
            alpha.weight = nn.Parameter(torch.full_like(alpha.weight, float("nan"), device="cpu"))
        self.identity(module)
        # What a checkpoint holds stays.
        loaded = DWAModules(3).to("meta")
        value = nn.Parameter(torch.tensor([[0.5, 2.0]]))
        value._is_hf_initialized = True
        loaded.alphas[0].weight = value
        self.assertTrue(torch.equal(loaded.alphas[0].weight, value))

    def test_a_pass_on_uninitialized_weights_is_an_error(self):
        for bad in (float("nan"), 0.0):
            module = DWAModules(2)
            with torch.no_grad():
                module.alphas[1].weight.fill_(bad)
            with self.assertRaisesRegex(RuntimeError, "after block 2 are not initialized"):
                module.init_accumulators(torch.ones(1, 4))
            module.reset_parameters()
            module.init_accumulators(torch.ones(1, 4))


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}, kernels: {denseformer.has_kernels}", file=sys.stderr)
    unittest.main()
