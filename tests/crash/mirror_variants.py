"""The mirror, tampered with, to show that the torture would notice."""

from __future__ import annotations

from typing import Final

# Goes on from a file instead of what the topics hold, and writes it before Kafka has committed, as
# if somebody had found that to be faster. The first time it runs, what it sends second takes so
# long that it is killed meanwhile.
GOES_ON_FROM_A_FILE: Final = """
import time
from tidemark.ledger.sequencer import Head
from tidemark.mirror.following import Mirror

honest_begin, honest_mirror = Mirror.begin, Mirror._mirror

def begin(self):
    honest_begin(self)
    self.position = self._config.state_dir / "position"
    self.is_slow = not self.position.exists()
    if not self.is_slow:
        last, received_at, chain = self.position.read_text().split()
        self.reached = Head(int(last), int(received_at), bytes.fromhex(chain))

def mirror(self, chunk, meanwhile):
    last = chunk.commits[-1]
    self.position.write_text(f"{last.last_sequence} {last.received_at} {last.chain.hex()}")
    if self.is_slow and self.reached.last_sequence:
        time.sleep(60)
    honest_mirror(self, chunk, meanwhile)

Mirror.begin, Mirror._mirror = begin, mirror
"""
