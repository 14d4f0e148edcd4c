"""A digest follows code, not comments, and reaches all that a module imports of ours."""

import pytest

from plugin_packages import forget
from ragauge.io import digest as module


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "ragauge"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text(
        "from ragauge.sub import b\n\n\ndef f():\n    from ragauge import c\n    return c, b\n"
    )
    (folder / "sub" / "__init__.py").write_text("X = 1\n")
    (folder / "sub" / "b.py").write_text("import os\n")
    (folder / "c.py").write_text("VALUE = 1\n")
    (folder / "d.py").write_text(
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from ragauge.a import f\n"
    )
    monkeypatch.setattr(module, "ROOT", tmp_path)
    forget()
    yield folder
    forget()


def digest_of(name):
    """The digest as a new process would read it."""
    forget()
    return module.digest(name)


def test_reaches_imports_in_functions_and_packages_of_modules(package):
    expected = {"ragauge.a", "ragauge.sub", "ragauge.sub.b", "ragauge.c"}
    assert module.reachable("ragauge.a") == expected
    assert module.reachable("ragauge.d") == {"ragauge.d"}  # not those for the type checker


def test_changes_with_c_code_of_its_packages(package):
    digests = [module.digest("ragauge.a")]
    for file in ("sub/kernel.c", "sub/kernel.h"):
        (package / file).write_text("int one(void) { return 1; }\n")
        digests.append(digest_of("ragauge.a"))
    assert len(set(digests)) == 3


def test_changes_with_the_yaml_of_a_module_wherever_the_package_lies(
    package, tmp_path, monkeypatch
):
    digests = []
    for text in ("a: 1\n", "a: 2\n"):
        for place in ("c.yaml", "sub/one.c"):
            (package / place).write_text(text)
        digests.append(digest_of("ragauge.a"))
    (tmp_path / "elsewhere").mkdir()
    package.rename(tmp_path / "elsewhere" / "ragauge")
    monkeypatch.setattr(module, "ROOT", tmp_path / "elsewhere")
    assert digests[0] != digests[1] == digest_of("ragauge.a")


def test_help_texts_do_not_count(package):
    text = "add_argument('--k', help={!r}, default={})\n"
    digests = []
    for help_text, default in (("kept", 1), ('"kept" documents\'', 1), ("kept", 2)):
        (package / "c.py").write_text(text.format(help_text, default))
        digests.append(digest_of("ragauge.c"))
    assert digests[0] == digests[1] != digests[2]


def test_what_cannot_change_a_result_does_not_count_unless_it_is_named(package):
    digests = []
    for value in (1, 2):
        (package / "c.py").write_text(f"AFFECTS_RESULTS = False\nVALUE = {value}\n")
        digests.append([digest_of(name) for name in ("ragauge.a", "ragauge.c")])
    (before, named), (after, named_after) = digests
    assert before == after
    assert named != named_after


def test_finds_imports_below_every_kind_of_statement(package):
    (package / "e.py").write_text(
        "import ragauge\n"
        "class C:\n    async def f(self):\n        async with self:\n            import ragauge.a\n"
        "try:\n    pass\nexcept OSError:\n    import ragauge.c\nelse:\n    pass\nfinally:\n    import ragauge.d\n"
        "match 1:\n    case 1:\n        from ragauge.sub import X\n"
        "while False:\n    pass\nelse:\n    from ragauge.sub.b import os\n"
    )
    forget()
    modules = ("a", "c", "d", "sub", "sub.b")
    assert module.imports("ragauge.e") == {f"ragauge.{name}" for name in modules}
