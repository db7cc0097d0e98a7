"""KvpagerConnector with "record_only": what the engine is asked, in a recording; nothing else.

Neither KV nor schedule is touched: no token is ever promised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._guard import Troubles, never_raises
from ..record import MAX_CONTENTS
from . import versions as v
from .recording import Requests, check_directory

logger = v.logger(__name__)

_FIELDS = {"record_only", "record", "max_contents"}


class Settings:
    """kv_connector_extra_config.

    record        a directory that is there; each process writes a file of its own into it
    max_contents  so many different blocks are told apart, 96 bytes each; older ones count as new
    """

    def __init__(self, given: dict[str, Any]) -> None:
        unknown = sorted(given.keys() - _FIELDS)
        if unknown:
            raise ValueError(f"kv_connector_extra_config: {unknown[0]} is unknown with record_only; known "
                             f"are {', '.join(sorted(_FIELDS))}")
        if given["record_only"] is not True:
            raise ValueError(f"record_only: is {given['record_only']!r}, expected true")
        self.directory = check_directory("record", given.get("record"))
        self.max_contents = given.get("max_contents", MAX_CONTENTS)
        if type(self.max_contents) is not int or self.max_contents < 1:
            raise ValueError(f"max_contents: is {self.max_contents!r}, expected a number from 1")


def _nothing(self: Any, *given: Any, **named: Any) -> None:
    pass


# What the engine is told where a method would raise: it goes on, and a request may be missing.
_ANSWERS: dict[str, Callable[..., Any]] = {
    "get_num_new_matched_tokens": lambda self, *given: (0, False),
    "update_state_after_alloc": _nothing,
    "build_connector_meta": lambda self, *given: v.ConnectorMetadata(),
    "request_finished": lambda self, *given: (False, None),
    "request_finished_all_groups": lambda self, *given: (False, None),
    "reset_cache": lambda self: True,
    "register_kv_caches": _nothing,
    "start_load_kv": _nothing,
    "wait_for_layer_load": _nothing,
    "save_kv_layer": _nothing,
    "wait_for_save": _nothing,
    "shutdown": _nothing,
}


@never_raises(_ANSWERS)
class RecordOnly(v.ConnectorBase, v.SupportsHMA):
    """What KvpagerConnector is with "record_only": true."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.troubles = Troubles(logger)
        self._requests: Requests | None = None
        settings = Settings(vllm_config.kv_transfer_config.kv_connector_extra_config)
        if role == v.ConnectorRole.SCHEDULER:
            self._requests = Requests(vllm_config, settings.directory, self.troubles, settings.max_contents)

    @property
    def _recorded(self) -> Requests:
        assert self._requests is not None
        return self._requests

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    # ------------------------------------------------------------------- the scheduler's side

    def get_num_new_matched_tokens(self, request: Any,
                                   num_computed_tokens: int) -> tuple[int | None, bool]:
        self._recorded.looked_up(request, num_computed_tokens)
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._recorded.admitted(request)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        self._recorded.stepped()
        return v.ConnectorMetadata()

    def request_finished(self, request: Any,
                         block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]
                                    ) -> tuple[bool, dict[str, Any] | None]:
        self._recorded.finished(request)
        return False, None

    def reset_cache(self) -> bool | None:
        return True

    # ---------------------------------------------------------------------- the worker's side

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """There is nothing to copy."""

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """There is nothing to load."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nor to wait for."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nor to keep."""

    def wait_for_save(self) -> None:
        """Nor that."""

    def shutdown(self) -> None:
        if self._requests is not None:
            self._requests.close()
