# One image for webhook, controller and agent: see docs/image.md. BASE is any image with Python 3.11 or later.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
# --without-pip: what is installed from outside stays outside. Both stages have the same base, so its links stay valid.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/instaslice
WORKDIR /source
COPY requirements-build.txt requirements-runtime.txt ./
# Wheels only, by hash: nothing is compiled, so that no stage needs a compiler. The client's settings (index, proxy,
# authorities) come as secrets, which no layer keeps.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.pem \
    --mount=type=cache,target=/root/.cache/pip \
    pip="/build/bin/pip --disable-pip-version-check --quiet" locked="--require-hashes --only-binary :all: --no-compile" && \
    $pip install $locked --requirement requirements-build.txt && \
    $pip --python /opt/instaslice/bin/python install $locked --requirement requirements-runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY charts charts
COPY src src
# Bytecode without a source check: the files of an image do not change, and a read-only root could not keep new ones.
RUN pip="/build/bin/pip --disable-pip-version-check --quiet" && \
    $pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheel . && \
    $pip --python /opt/instaslice/bin/python install --no-index --no-deps --no-compile /wheel/*.whl && \
    cd /opt/instaslice && \
    find lib -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + && \
    find lib -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete && \
    bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash lib

FROM ${BASE}
LABEL org.opencontainers.image.title="InstaSlice" \
      org.opencontainers.image.description="Cuts GPUs into slices on Kubernetes at the moment a pod asks for one" \
      org.opencontainers.image.licenses="Apache-2.0"
# The base's own pip, and what could install one.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/ensurepip /usr/local/lib/python3*/site-packages/pip* \
    /usr/lib/python3*/ensurepip /usr/share/python-wheels
COPY --from=build /opt/instaslice /opt/instaslice
# HOME: the user has no entry in /etc/passwd.
ENV PATH=/opt/instaslice/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["instaslice"]
