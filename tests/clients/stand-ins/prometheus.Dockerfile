# A real Prometheus under the name of the image that cannot be pulled, which it resembles as far as compose.yml uses it.
FROM paddock-base:trixie
COPY prometheus promtool /bin/
RUN mkdir -p /prometheus && chown 65534:65534 /prometheus
USER 65534:65534
VOLUME /prometheus
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
