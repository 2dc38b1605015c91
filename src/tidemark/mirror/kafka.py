"""Kafka's client, with the settings that the mirror's promises rest on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tidemark.config import Config
from tidemark.config.mirror_model import MirrorConfig
from tidemark.errors import ConfigError
from tidemark.mirror.errors import MirrorFenced, MirrorUnavailable

T = TypeVar("T")

# An answer that takes longer than this is none.
ANSWER_WITHIN_S: Final = 15.0
TRANSACTION_WITHIN_S: Final = 60.0
_GIVE_UP_S: Final = 5.0
ONLY_ONE: Final = "Only one may run: stop it there, or leave this one stopped."
MOST_BATCH_BYTES: Final = 1_000_000
_BATCH_BYTES: Final = "batch.size"
_QUEUED_KBYTES: Final = "queue.buffering.max.kbytes"
_MOST_QUEUED_KBYTES: Final = 64 * 1024
_TIMEOUT_MS: Final = "transaction.timeout.ms"
# Less than the most that brokers allow by default. Nobody waits for it but a mirror that sleeps:
# who takes over from a dead one ends its transaction at once.
_GIVEN_UP_AFTER_MS: Final = 600_000
# An event's envelope around its content, and what Kafka puts around both.
_ENVELOPE_BYTES: Final = 64 * 1024
_LEAST_MESSAGE_BYTES: Final = 1024 * 1024
# Else a client looks for brokers only when it is asked something, and then at its leisure: 50 ms.
_AT_ONCE: Final = {"enable.sparse.connections": False}
_QUICK: Final = _AT_ONCE | {
    "queue.buffering.max.messages": 1_000_000,
    # Brokers like large batches. But the last one is not held back until it is waited for: it goes
    # while the next transaction is made ready.
    "linger.ms": 5,
    "batch.num.messages": 100_000,
    "compression.type": "lz4",
}
# Who asks something else meanwhile waits behind it.
_PROMPT: Final = {"fetch.wait.max.ms": 10}
# By default it would look for brokers that are away only every 10 s. Who sets how soon it does so
# first sets this too.
_SOON_BACK: Final = {"reconnect.backoff.max.ms": 1_000}
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


def most_message_bytes(config: Config) -> int:
    """What a topic must take, so that no event is too large for it."""
    return max(_LEAST_MESSAGE_BYTES, config.ingest.max_event_bytes + _ENVELOPE_BYTES)


def producer(
    config: Config, ledger_id: str, batch_bytes: int, on_error: Callable[[KafkaError], None]
) -> Producer:
    """One that writes transactions in the name of a ledger, of which there is one at a time. No
    batch is larger than this, unless it is of one message."""
    message_bytes = most_message_bytes(config) + _ENVELOPE_BYTES
    return _made(
        Producer,
        _settings(config.mirror, _QUICK, on_error)
        | {
            "transactional.id": ledger_id,
            _TIMEOUT_MS: given_up_after_ms(config),
            # Whoever sends knows sooner that brokers take nothing more, and waits if they are slow.
            "message.timeout.ms": given_up_after_ms(config),
            "message.max.bytes": message_bytes,
            # Else a large message would never be taken.
            _QUEUED_KBYTES: max(
                _number(config, _QUEUED_KBYTES, _MOST_QUEUED_KBYTES), message_bytes // 1024 + 1
            ),
            _BATCH_BYTES: min(_number(config, _BATCH_BYTES, MOST_BATCH_BYTES), batch_bytes),
            # A topic that is missing was removed, and must not come back with other settings.
            "allow.auto.create.topics": False,
        },
    )


def given_up_after_ms(config: Config) -> int:
    """How long a transaction may take before the brokers end it by themselves."""
    return _number(config, _TIMEOUT_MS, _GIVEN_UP_AFTER_MS)


def _number(config: Config, option: str, default: int) -> int:
    wanted = config.mirror.options.get(option, default)
    try:
        return int(wanted)
    except ValueError as error:
        raise ConfigError(
            f"{option} in mirror.options is {wanted!r}, and no whole number",
            hint=f"Leave it out, and it is {default}.",
            field="mirror.options",
        ) from error


def consumer(config: Config, *, sees_all: bool = False) -> Consumer:
    """One that sees only what is committed, or really all, and belongs to no group."""
    return _made(
        Consumer,
        _settings(config.mirror, _PROMPT)
        | {
            "group.id": "tidemark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted" if sees_all else "read_committed",
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
        },
    )


def admin(config: Config) -> AdminClient:
    return _made(AdminClient, _settings(config.mirror, _AT_ONCE))


def _made(kind: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    try:
        return kind(settings)
    # The others are of options that only a program can set.
    except (KafkaException, AttributeError, TypeError, ValueError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ConfigError(
            f"Kafka's client does not take mirror.options: {why}",
            hint="They are the options of librdkafka, as its documentation spells them.",
            field="mirror.options",
        ) from error


class Trouble:
    """What the client says about the brokers. It knows nothing of who uses the client: that would
    keep both alive."""

    def __init__(self) -> None:
        self.said = ""

    def note(self, error: KafkaError) -> None:
        # One broker of several may be down without harm.
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.said = error.str()


def is_fenced(error: KafkaException | KafkaError) -> bool:
    """If it says that another has taken over."""
    found = error.args[0] if isinstance(error, KafkaException) else error
    return found.code() in _FENCED


def wants_an_end(error: KafkaError) -> bool:
    """If the transaction has failed, or has just been found to have."""
    return error.txn_requires_abort() or error.code() in (KafkaError._STATE, KafkaError._FATAL)


def why_failed(producer: Any) -> KafkaError | None:
    """Why the transaction under way cannot be committed any more, if so. Kafka's client has no
    question for that; but asked to begin another, it says why it does not."""
    try:
        producer.begin_transaction()
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found if found.txn_requires_abort() or found.fatal() else None
    return None


def given_up(producer: Any) -> KafkaException | None:
    """Ends a transaction that was begun and not finished, as far as that can be done: else why
    not."""
    producer.purge()
    refused: list[KafkaException] = []
    # By another thread: whatever the client raises while this one handles an exception keeps that
    # exception for ever, with all that its frames hold.
    ending = threading.Thread(target=_abort, args=[producer, refused])
    ending.start()
    ending.join()
    return refused[0] if refused else None


def _abort(producer: Any, refused: list[KafkaException]) -> None:
    try:
        producer.abort_transaction(_GIVE_UP_S)
    except KafkaException as error:
        # There is none, or the brokers are away: who begins next ends it.
        refused.append(error.with_traceback(None))


def failure(error: KafkaException | KafkaError, doing: str) -> MirrorFenced | MirrorUnavailable:
    """What to raise when Kafka says no."""
    found = error.args[0] if isinstance(error, KafkaException) else error
    if is_fenced(found):
        return MirrorFenced(
            f"another mirror of this ledger has taken over ({found.str()})",
            hint=ONLY_ONE,
        )
    return MirrorUnavailable(
        f"{doing} failed: {found.str()}",
        hint="Look at the brokers in mirror.bootstrap_servers; the mirror goes on by itself.",
        field="mirror.bootstrap_servers",
    )


def _settings(
    settings: MirrorConfig,
    unless_set: Mapping[str, Any],
    on_error: Callable[[KafkaError], None] = lambda error: None,
) -> dict[str, Any]:
    options: Mapping[str, Any] = settings.options
    return {
        "client.id": "tidemark",
        "socket.connection.setup.timeout.ms": int(ANSWER_WITHIN_S * 1000),
        # What it would say, our errors do.
        "log_level": 0,
        **({} if "reconnect.backoff.ms" in options else _SOON_BACK),
        **unless_set,
        **options,
        "bootstrap.servers": settings.bootstrap_servers,
        "error_cb": on_error,
    }
