"""A digest follows code, not comments, and reaches all that a module imports of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragauge.io import digest as module


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ragauge"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text(
        "from ragauge.sub import b\n\n\ndef f():\n    from ragauge import c\n    return c, b\n"
    )
    (folder / "sub" / "__init__.py").write_text("X = 1\n")
    (folder / "sub" / "b.py").write_text("import os\n")
    (folder / "c.py").write_text("VALUE = 1\n")
    (folder / "d.py").write_text("from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from ragauge.a import f\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    forget()
    yield folder
    forget()


def forget() -> None:
    for cached in (module.imports, module._path, module._text, module._kept):
        cached.cache_clear()


def test_reaches_imports_in_functions_and_packages_of_modules(package: Path) -> None:
    assert module.reachable("ragauge.a") == {"ragauge.a", "ragauge.sub", "ragauge.sub.b", "ragauge.c"}


def test_imports_for_the_type_checker_do_not_count(package: Path) -> None:
    assert module.reachable("ragauge.d") == {"ragauge.d"}


def test_changes_with_code_alone(package: Path) -> None:
    before = module.digest("ragauge.a")
    (package / "c.py").write_text('"""A docstring."""\nVALUE = 1  # a comment\n')
    forget()
    assert module.digest("ragauge.a") == before
    (package / "c.py").write_text("VALUE = 2\n")
    forget()
    assert module.digest("ragauge.a") != before


def test_help_texts_do_not_count(package: Path) -> None:
    text = "add_argument('--k', help={!r}, default={})\n"
    digests = []
    for told, default in (("kept", 1), ('"kept" documents\'', 1), ("kept", 2)):
        (package / "c.py").write_text(text.format(told, default))
        forget()
        digests.append(module.digest("ragauge.c"))
    assert digests[0] == digests[1] != digests[2]


def test_what_was_read_once_is_kept_for_other_processes(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = module.digest("ragauge.a")
    monkeypatch.setattr(module.sys, "dont_write_bytecode", False)
    module._keep(module._place(module.ROOT), module._kept(module.ROOT), 0)
    forget()
    monkeypatch.setattr(module.ast, "parse", None)  # nothing is parsed again
    assert module.digest("ragauge.a") == first


def test_what_cannot_change_a_result_does_not_count_unless_it_is_named(package: Path) -> None:
    before, named = module.digest("ragauge.a", without={"ragauge.c"}), module.digest("ragauge.c")
    (package / "c.py").write_text("VALUE = 2\n")
    forget()
    assert module.digest("ragauge.a", without={"ragauge.c"}) == before
    assert module.digest("ragauge.c", without={"ragauge.c"}) != named


@pytest.mark.parametrize("changed", sorted(module.NO_PART))
def test_a_fix_to_what_cannot_change_a_result_discards_none(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to the downloader, the progress bar or a message: partial answers, trainings and pipelines go on."""
    results = ("evaluation.runner", "methods.naive", "training.finetuning", "generation.pipeline", "retrieval.embed")
    before = [module.digest(f"ragauge.{name}") for name in results]
    known = module._text
    assert known(changed)
    edited = {changed: known(changed)._replace(code="another")}
    monkeypatch.setattr(module, "_text", lambda name: edited.get(name) or known(name))
    assert [module.digest(f"ragauge.{name}") for name in results] == before


def test_answers_rest_on_the_decoder_prompts_and_converted_weights() -> None:
    reached = module.reachable("ragauge.evaluation.runner", without=module.NO_PART)
    assert {"ragauge.engines.decoder", "ragauge.prompts.prompt", "ragauge.assets.gguf"} <= reached


def test_an_unknown_module_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        module.digest("ragauge.nothing")


def test_a_method_rests_on_the_decoder_but_not_on_other_methods() -> None:
    reached = module.reachable("ragauge.methods.naive")
    assert "ragauge.engines.decoder" in reached
    assert "ragauge.methods.superposition" not in reached


def test_finds_imports_below_every_kind_of_statement(package: Path) -> None:
    (package / "e.py").write_text(
        "import ragauge\n"
        "class C:\n    async def f(self):\n        async with self:\n            import ragauge.a\n"
        "try:\n    pass\nexcept OSError:\n    import ragauge.c\nelse:\n    pass\nfinally:\n    import ragauge.d\n"
        "match 1:\n    case 1:\n        from ragauge.sub import X\n"
        "while False:\n    pass\nelse:\n    from ragauge.sub.b import os\n"
    )
    forget()
    assert module.imports("ragauge.e") == {"ragauge.a", "ragauge.c", "ragauge.d", "ragauge.sub", "ragauge.sub.b"}
