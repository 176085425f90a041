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
