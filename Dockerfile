# Tidemark with the mirror and the landing in ClickHouse, on a Java for Spark.
#
#   docker build -t tidemark .
#   docker run --rm tidemark --help

FROM python:3.11-slim AS build
WORKDIR /src
# Before the sources, so that a change of these does not install everything anew.
COPY requirements/container.lock requirements/build.lock requirements/
RUN python -m venv /opt/tidemark \
    && /opt/tidemark/bin/pip install --no-cache-dir --require-hashes --no-deps \
        -r requirements/container.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --no-deps \
        -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/tidemark/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl

FROM python:3.11-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --shell /usr/sbin/nologin tidemark \
    && install --directory --owner=tidemark --mode=0700 /var/lib/tidemark
COPY --from=build /opt/tidemark /opt/tidemark
ENV PATH=/opt/tidemark/bin:$PATH \
    TIDEMARK_STATE_DIR=/var/lib/tidemark
USER tidemark
WORKDIR /var/lib/tidemark
VOLUME /var/lib/tidemark
EXPOSE 8787
ENTRYPOINT ["tidemark"]
CMD ["up"]
