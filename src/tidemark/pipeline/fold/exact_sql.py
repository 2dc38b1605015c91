"""Exact arithmetic as SQL for DuckDB."""

from __future__ import annotations

from typing import Final

from tidemark.pipeline.fold.texts import WIDE

# Sequences are positive and below this, so one number, a time times this and a sequence, sorts as
# both do.
ORDER_BASE: Final = 10**18


def mean_sql(total: str, count: str) -> str:
    """The quotient to nine places, half to even; in whole billionths, as SQL divides in floats."""
    billionths = f"replace(({total})::{WIDE}::VARCHAR, '.', '')::HUGEINT"
    size, half = f"abs({billionths})", f"2 * (abs({billionths}) % {count})"
    up = f"({half} > {count} OR ({half} = {count} AND ({size} // {count}) % 2 = 1))"
    quotient = f"(sign({billionths})::HUGEINT * ({size} // {count} + {up}::HUGEINT))"
    digits = f"abs({quotient})::VARCHAR"
    # Padding to a length would also cut what is longer.
    digits = f"lpad({digits}, greatest(10, length({digits}))::INTEGER, '0')"
    sign = f"CASE WHEN {quotient} < 0 THEN '-' ELSE '' END"
    text = f"{sign} || left({digits}, -9) || '.' || right({digits}, 9)"
    return f"CASE WHEN {count} > 0 THEN ({text})::{WIDE} END"
