# Debian's HAProxy under the name of the image that cannot be pulled.
FROM paddock-base:trixie
RUN apt-get update && apt-get install -y --no-install-recommends haproxy && rm -rf /var/lib/apt/lists/*
