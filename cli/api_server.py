"""The API server of the cluster that the kubeconfig names, with errors in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp2026.cli.errors import CommandError


class ApiServerError(CommandError):
    """The API server answered with an error; `status` is the HTTP status."""

    def __init__(self, status: int, reason: str, advice: str) -> None:
        super().__init__(f"the API server answers {status} {reason}{advice}")
        self.status = status


@contextmanager
def api_server(context: str | None = None, *, instead: str = "", advice: str = "") -> Iterator[Any]:
    """Connect; yield the `ApiClient`.

    `context` is one of the kubeconfig; None: the current one. `instead` says what to do without a kubeconfig,
    `advice` what an error of the API server may be due to.

    Raises:
        CommandError: there is no usable kubeconfig, or within: the API server does not answer.
        ApiServerError: within: it answers with an error.

    """
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError

    configuration = client.Configuration()
    try:
        config.load_kube_config(context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped
    except config.ConfigException as error:
        raise CommandError(f"no usable kubeconfig: {error}{instead}") from error
    configuration.retries = 0
    with client.ApiClient(configuration) as api:
        try:
            yield api
        except client.ApiException as error:
            raise ApiServerError(error.status, error.reason, advice) from error
        except (HTTPError, OSError) as error:
            raise CommandError(f"the API server does not answer: {error}") from error
