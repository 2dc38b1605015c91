"""The settings of who may call: API keys, tokens, and the rows that holders of tokens see."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from tidemark.config.durations import UNITS_US
from tidemark.config.faults import Names
from tidemark.config.live_values import FilePath, TokenSecret, Where
from tidemark.config.names import VIEW_NAME_PATTERN
from tidemark.config.section import ListOf, MappingOf, Section, Text
from tidemark.config.values import Duration, Sha256Hex

Scope = Literal["ingest", "control", "read", "triggers", "introspect", "admin"]
Algorithm = Literal[
    "HS256",
    "HS384",
    "HS512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]

ALL_TENANTS: Final = "*"

SCOPES: Final[dict[Scope, str]] = {
    "ingest": "Send events.",
    "control": "Send control events: `void`, `amend`, `adjust`, `end`.",
    "read": "Read events and what is derived from them.",
    "triggers": "Make, change and remove triggers, and see what they delivered.",
    "introspect": "Ask GraphQL what its schema is.",
    "admin": "Operate the deployment.",
}


class ApiKey(Section):
    """One caller, known by a key of which only the hash is written down."""

    name: Text = Field(description="Who the key belongs to; appears in logs, unique.")
    sha256: Sha256Hex = Field(
        repr=False, description="The SHA-256 of the key, 64 hexadecimal digits."
    )
    scopes: ListOf[Scope] = Field(
        min_length=1,
        description=(
            "What the key may do: any of `ingest`, `control`, `read`, `triggers`, `introspect`, "
            "`admin`."
        ),
    )
    tenants: ListOf[Text] = Field(
        min_length=1, description='The tenants the key may act for; `"*"` is all of them.'
    )


class JwtKey(Section):
    """Who issues tokens (JWT) for GraphQL, and how they are verified.

    Each entry has exactly one of `secret`, `public_key_file` and `jwks_file`.
    """

    name: Text = Field(description="Who issues the tokens; appears in logs, unique.")
    algorithm: Algorithm = Field(
        description="The only algorithm that is accepted, whatever a token says of itself."
    )
    secret: TokenSecret | None = Field(
        default=None,
        repr=False,
        description=(
            "The secret of an `HS…` algorithm, at least as many bytes as its digest has: 32, 48 "
            "or 64."
        ),
    )
    public_key_file: FilePath | None = Field(
        default=None,
        description="The file with the public key in PEM format, relative to the config file.",
    )
    jwks_file: FilePath | None = Field(
        default=None,
        description=(
            "The file with a JSON Web Key Set, whose keys are found by their `kid`; it is read "
            "again when it changes."
        ),
    )
    issuer: Text | None = Field(
        default=None, description="What the claim `iss` must be; by default anything."
    )
    audience: Text | None = Field(
        default=None,
        description="What the claim `aud` must name; by default there must be no such claim.",
    )
    leeway_us: Duration = Field(
        default=5 * UNITS_US["s"],
        validation_alias="leeway",
        description="How far the issuer's clock may be off in `exp` and `nbf`.",
    )
    require_expiry: bool = Field(
        default=True, description="Whether a token without the claim `exp` is refused."
    )
    scopes: ListOf[Scope] = Field(
        default=["read"],
        description="What the tokens may do at most: any of `read`, `triggers`, `introspect`.",
    )
    scopes_claim: Text | None = Field(
        default=None,
        description=(
            "The claim, a list or text with spaces, that names which of `scopes` a token has; by "
            "default it has them all."
        ),
    )
    tenants_claim: Text | None = Field(
        default=None,
        description=(
            "The claim, text or a list, that names the only tenants whose rows a token shows, "
            "besides what `auth.rules` say; by default those rules alone decide."
        ),
    )


class AuthConfig(Section):
    """Who may call. Without keys everyone on this machine may, and nobody else."""

    keys: ListOf[ApiKey] = Field(default_factory=list, description="The API keys.")
    jwt: ListOf[JwtKey] = Field(
        default_factory=list, description="The issuers of tokens; there must also be API keys."
    )
    rules: Annotated[MappingOf[Where], Names(VIEW_NAME_PATTERN)] = Field(
        default_factory=dict,
        description=(
            "For each view, a filter that the rows shown to holders of tokens must pass, in which "
            "`$jwt.<claim>` stands for a claim. A view without a rule is not shown to them; `{}` "
            "shows every row."
        ),
    )
