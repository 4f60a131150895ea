# The relay with every broker's client library. Two stages of one Debian base: what builds stays behind.
#
#   docker build -t outbox-relay .
#   docker run --rm outbox-relay --help
#
# With a package index of your own, or behind a proxy with a certificate of its own (both only for the build):
#
#   docker build --build-arg PIP_INDEX_URL=https://pypi.example/simple --build-arg CA_CERTIFICATE="$(cat ca.pem)" .

ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
ARG PIP_INDEX_URL=https://pypi.org/simple
ARG CA_CERTIFICATE=
RUN apt-get update -qq \
 && apt-get install -qq -y --no-install-recommends ca-certificates python3-pip python3-venv
RUN [ -z "$CA_CERTIFICATE" ] \
 || { echo "$CA_CERTIFICATE" > /usr/local/share/ca-certificates/build.crt && update-ca-certificates; }
RUN python3 -m venv --without-pip /opt/relay
WORKDIR /src
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY relay relay
COPY sinks sinks
COPY sql sql
RUN ${CA_CERTIFICATE:+env PIP_CERT=/etc/ssl/certs/ca-certificates.crt} \
    pip --python /opt/relay/bin/python install --quiet --no-cache-dir --disable-pip-version-check '.[redis,kafka,sqs]'
# botocore knows every service of AWS; needed are SQS, and what credentials may come from.
RUN cd /opt/relay/lib/python3*/site-packages/botocore/data \
 && find . -mindepth 1 -maxdepth 1 -type d \
      ! -name sqs ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -r {} +


FROM ${BASE}
# tini is the first process: signals reach the relay from its first moment, and orphans are reaped.
RUN apt-get update -qq \
 && apt-get install -qq -y --no-install-recommends ca-certificates python3 tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=build /opt/relay /opt/relay
COPY docker/entrypoint /usr/local/bin/entrypoint

ENV PATH=/opt/relay/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HEALTH_PORT=8080
# relay.toml is read from here, and the functions of local workers are imported from here.
WORKDIR /app
USER 10001:10001
EXPOSE 8080

# Whether the process works, not whether its brokers do: a restart would heal nothing there.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
  CMD ["python", "-c", "from os import environ; from urllib.request import urlopen; urlopen(f'http://127.0.0.1:{environ[\"HEALTH_PORT\"]}/healthz', timeout=4)"]
ENTRYPOINT ["entrypoint"]
CMD ["sh", "-c", "exec relay run --http 0.0.0.0:$HEALTH_PORT"]
