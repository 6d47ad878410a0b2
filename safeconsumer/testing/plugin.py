"""
Defines the pytest plugin that is active wherever safeconsumer is installed.

The plugin does not define any fixtures, and adds options only if
:mod:`safeconsumer.testing.cases` is run. A project that wants the fixtures must load
:mod:`safeconsumer.testing.fixtures` itself.
"""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser
) -> None:
    """
    Add the options for the cases, but only if pytest will run the cases.

    The options have short names that other projects may use, too. The cases'
    conftest.py is loaded too late to add options.
    """
    named = getattr(early_config.known_args_namespace, "file_or_dir", None) or []
    if not any("safeconsumer" in one or "cases" in one for one in named):
        return
    from safeconsumer.testing.cases import options  # noqa: PLC0415  only for the cases

    if options.are_asked_for(named, early_config.invocation_params.dir):
        options.add(parser)
        early_config.pluginmanager.register(options, "safeconsumer-cases")
