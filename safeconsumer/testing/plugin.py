"""
Defines the plugin that pytest loads in every session where safeconsumer is installed.

It has no fixtures, and options only if :mod:`safeconsumer.testing.cases` is run. The
fixtures must be asked for: :mod:`safeconsumer.testing.fixtures`.
"""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> None:
    """
    Add the cases' options if pytest is to run the cases.

    Their names are short, and another project may have options of the same names. The
    cases' own conftest.py is loaded too late to add options.
    """
    named = getattr(early_config.known_args_namespace, "file_or_dir", None) or []
    if not any("safeconsumer" in one or "cases" in one for one in named):
        return
    from safeconsumer.testing.cases import options  # noqa: PLC0415  only for the cases

    if options.are_asked_for(named, early_config.invocation_params.dir):
        options.add(parser)
        early_config.pluginmanager.register(options, "safeconsumer-cases")
