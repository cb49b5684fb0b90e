"""Benchmarks keep up with what they measure."""

import importlib
import pkgutil

import pytest

import benchmarks

MODULES = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name[0] != "_")


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")
