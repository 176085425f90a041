"""The parser of depth patterns against the engine's, and what it says about wrong ones; run with
PYTHONPATH at the package, built or not."""

import os
import pathlib
import random
import tempfile
import unittest

import torch
from denseformer import DepthMixer, DWAModules, has_kernels
from denseformer.pattern import pattern_sources, pattern_spec

FORMS = (
    "expected none, KxP (such as 1x1 or 4x5), grouped:KxP, last:K, final, final:P or a mask file"
)
# One or two of them in place of the letters of every form.
NUMBERS = ["0", "1", "2", "3", "5", "6", "7", "12", "13", "03", "999999", "1000000", "", "-1", "x"]
MASK = "mask:11/000/0001/10001"


def specs():
    yield from ["none", "final", "", "None", "4", "4x5x6", "4x5 ", " 4x5", "+4x5", "last", "grouped"]
    yield from ["mask", "mask:", "final:", "1x1\n", "\u0661x1", "4x\u0665"]
    for a in NUMBERS:
        yield from [f"last:{a}", f"final:{a}", f"last:{a}:1", f"final:{a}x1"]
        for b in NUMBERS:
            yield from [f"{a}x{b}", f"grouped:{a}x{b}"]


def result(parse, *arguments):
    """The sources or the message."""
    try:
        return [list(row) for row in parse(*arguments)]
    except (RuntimeError, ValueError) as error:
        return str(error).split("\nException raised")[0]


def ours(spec, depth):
    return result(lambda: pattern_sources(depth, spec))


class EngineTest(unittest.TestCase):
    """Equal sources and equal messages."""

    def setUp(self):
        if not has_kernels:
            self.skipTest("built without kernels")

    def engine(self, spec, depth):
        return result(torch.ops.denseformer.pattern_sources, spec, depth)

    def test_every_form_at_every_depth(self):
        for depth in (1, 2, 3, 6, 12):
            for spec in specs():
                self.assertEqual(ours(spec, depth), self.engine(spec, depth), (spec, depth))

    def test_masks(self):
        source = random.Random(1)
        accepted = 0
        for trial in range(4000):
            depth = source.randint(1, 5)
            rows = []
            for i in range(1, depth + 1):
                digits = [source.choice("01") for _ in range(i)] + ["1"]
                rows.append(source.choice(["", " ", ",", ", "]).join(digits))
            for _ in range(source.randint(0, 2)):  # and then what may or may not be wrong
                rows.insert(source.randint(0, len(rows)), source.choice(["", "#1", " ", "0", "1x"]))
            text = source.choice(["/", "\n", "\r\n"]).join(rows)
            for _ in range(source.choice([0, 0, 1, 2])):
                at = source.randint(0, len(text))
                piece = source.choice(["0", "1", "2", "\t", "\v", "\f", "/", "\n", "\x7f", "#", "'"])
                text = text[:at] + piece + text[at + source.randint(0, 1) :]
            spec = "mask:" + text
            want = self.engine(spec, depth)
            self.assertEqual(ours(spec, depth), want, (spec, depth))
            accepted += isinstance(want, list)
        self.assertGreater(accepted, 400)
        self.assertLess(accepted, 3600)

    def test_specs_come_back(self):
        for spec in ["none", "4x2", "grouped:2x3", "last:2", "final", "final:3"]:
            sources = pattern_sources(6, spec)
            self.assertEqual(pattern_spec(6, spec), spec)
            self.assertEqual(self.engine(pattern_spec(6, sources[1:]), 6), sources)


class SourcesTest(unittest.TestCase):
    def test_every_form(self):
        for spec, reads in [
            ("none", lambda i, j: False),
            ("2x3", lambda i, j: i % 3 == 0 and (i - j) % 2 == 0),
            ("grouped:2x3", lambda i, j: i % 3 == 0 and j % 3 == 0 and (i - j) // 3 % 2 == 0),
            ("last:2", lambda i, j: j == 0 or i - j < 2),
            ("final", lambda i, j: i == 12),
            ("final:4", lambda i, j: i == 12 and j % 4 == 0),
        ]:
            want = [[j for j in range(i + 1) if i > 0 and reads(i, j)] for i in range(13)]
            self.assertEqual(pattern_sources(12, spec), want, spec)
        self.assertEqual(pattern_sources(4, MASK), [[], [0, 1], [], [3], [0, 4]])

    def test_modules_take_every_form(self):
        for spec in ["none", "2x2", "grouped:1x2", "last:2", "final", "final:2", MASK]:
            want = pattern_sources(4, spec)
            self.assertEqual(DWAModules(4, pattern=spec).sources, want)
            self.assertEqual(DepthMixer(4, spec).sources, want)

    def test_dilation_and_period_may_mean_no_average(self):
        self.assertEqual(DWAModules(3, 1, 5).sources, [[], [], [], []])

    def test_wrong_specs(self):
        for spec, message in [
            ("1y1", "depth pattern '1y1': " + FORMS),
            ("1.0x1", f"depth pattern '1.0x1': {FORMS}; there is no file of that name"),
            ("no/mask", f"depth pattern 'no/mask': {FORMS}; there is no file of that name"),
            ("0x1", "depth pattern '0x1': K is 0, expected at least 1"),
            ("final:0", "depth pattern 'final:0': P is 0, expected at least 1"),
            (
                "4x5",
                "depth pattern '4x5': period P = 5 is larger than the depth 4, so there would be "
                "no module",
            ),
            ("grouped:1x3", "depth pattern 'grouped:1x3': period P = 3 does not divide the depth 4"),
            ("mask:11", "mask: 1 rows, expected 4 (one per block)"),
            ("mask:11/12", "mask:2: unexpected character '2', expected 0 or 1"),
        ]:
            self.assertEqual(ours(spec, 4), "denseformer: " + message)
            for module in (lambda: DWAModules(4, pattern=spec), lambda: DepthMixer(4, spec)):
                with self.assertRaises(ValueError):
                    module()


class MaskFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "mask.txt")

    def write(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    def test_sources(self):
        self.write(b"# sources of blocks 1 to 4\n11\n000\n\n  1, 0, 0, 1, 0\r\n\t10101")
        want = [[], [0, 1], [], [0, 3], [0, 2, 4]]
        for path in (self.path, pathlib.Path(self.path)):
            self.assertEqual(pattern_sources(4, path), want)
            self.assertEqual(pattern_spec(4, path), "mask:11/000/1001/10101")
            self.assertEqual(DepthMixer(4, path).sources, want)

    def test_wrong_masks_name_the_line(self):
        for content, message in [
            (b"11\n111\n", ": 2 rows, expected 3 (one per block)"),
            (b"", ": 0 rows, expected 3 (one per block)"),
            (b"11\n# note\n111\n1111\n11111\n", ":5: more rows than the 3 blocks of the model"),
            (
                b"11\n1101\n1111\n",
                ":2: block 2 cannot read X_3: only outputs up to X_2 exist (the mask must be lower "
                "triangular)",
            ),
            (b"11\n11x\n1111\n", ":2: unexpected character 'x', expected 0 or 1"),
            (b"11\n11\xff\n1111\n", ":2: unexpected character '\ufffd', expected 0 or 1"),
            (b"11\n11\0\n1111\n", ":2: unexpected character '\\x00', expected 0 or 1"),
            (b"11\n111\n11110\n", ":3: more than 4 columns"),
            (b"11\n110\n111\n", ":2: block 2 must read its own output X_2 where it reads anything"),
        ]:
            self.write(content)
            self.assertEqual(ours(self.path, 3), f"denseformer: {self.path}{message}")

    def test_a_form_goes_before_a_file_of_its_name(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(os.path.dirname(self.path))
        for name, content in (("1x1", "0\n01\n"), ("mine", "01\n101\n")):
            with open(name, "w") as file:
                file.write(content)
        self.assertEqual(pattern_sources(2, "1x1"), [[], [0, 1], [0, 1, 2]])
        self.assertEqual(pattern_sources(2, "mine"), [[], [1], [0, 2]])

    def test_a_file_that_is_no_mask(self):
        with open(self.path, "wb") as file:
            file.truncate((64 << 20) + 5)
        message = f"denseformer: {self.path}: {(64 << 20) + 5} bytes, expected at most {64 << 20}"
        self.assertEqual(ours(self.path, 3), message)


if __name__ == "__main__":
    unittest.main()
