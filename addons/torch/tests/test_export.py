"""A model trained in PyTorch, exported, and evaluated by the program: the same loss.

Wants the path of the program `denseformer` in DENSEFORMER_PROGRAM.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import torch
from denseformer import DWAModules, export_run

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "gpt.py")


class ExportTest(unittest.TestCase):
    def test_the_program_finds_the_same_loss(self):
        program = os.environ.get("DENSEFORMER_PROGRAM", "")
        if not os.path.exists(program):
            self.skipTest("DENSEFORMER_PROGRAM does not name the program denseformer")
        for pattern in ["2x1", "4x5", "1x1"]:
            with self.subTest(pattern), tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, EXAMPLE, "--steps", "30", "--dwa", pattern]
                printed = subprocess.run(
                    command + ["--export", folder], check=True, capture_output=True, text=True
                ).stdout
                want = float(re.search(r"exported loss ([0-9.]+)", printed).group(1))
                result = subprocess.run(
                    [program, "eval", os.path.join(folder, "run"), "--json", "--quiet"]
                    + ["--data", os.path.join(folder, "val.bin"), "--precision", "fp32"],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
                self.assertAlmostEqual(json.loads(result)["loss"], want, delta=2e-5)

    def test_the_configuration_depends_on_no_mask_file(self):
        state = {"transformer.wte.weight": torch.ones(4, 2)}
        state.update({f"transformer.h.{i}.ln_1.weight": torch.ones(2) for i in range(2)})
        with tempfile.TemporaryDirectory() as folder:
            mask = os.path.join(folder, "mask.txt")
            with open(mask, "w") as file:
                file.write("# a mask\n11\n0, 0, 1\n")
            for name, dwa, want in (
                ("form", "last:2", "last:2"),
                ("file", mask, "mask:11/001"),
                ("lists", [[0, 1], []], "mask:11/000"),
            ):
                run = os.path.join(folder, name)
                export_run(state, run, n_head=1, seq_len=4, dwa=dwa)
                with open(os.path.join(run, "config.json")) as file:
                    self.assertEqual(json.load(file)["dwa"], want)
            run = os.path.join(folder, "wrong")
            with self.assertRaisesRegex(ValueError, "depth pattern '1y1': expected none, KxP"):
                export_run(state, run, n_head=1, seq_len=4, dwa="1y1")
            self.assertFalse(os.path.exists(run))

    def test_errors(self):
        model = torch.nn.ModuleDict({"dwa_modules": DWAModules(2)})
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run")
            with self.assertRaisesRegex(ValueError, "transformer.wte.weight is missing"):
                export_run(model, path, n_head=1, seq_len=4, dwa="1x1")
            state = {"transformer.wte.weight": torch.ones(4, 2)}
            with self.assertRaisesRegex(ValueError, "lm_head.weight differs"):
                export_run(
                    {**state, "lm_head.weight": torch.zeros(4, 2)},
                    path,
                    n_head=1,
                    seq_len=4,
                    dwa="1x1",
                )
            with self.assertRaisesRegex(ValueError, "no place in a run for other"):
                export_run(
                    {**state, "other": torch.zeros(1)}, path, n_head=1, seq_len=4, dwa="1x1"
                )
            self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main()
