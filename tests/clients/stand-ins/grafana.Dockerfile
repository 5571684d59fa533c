# What stands in for Grafana: see grafana.mjs.
FROM paddock-base:trixie
COPY node /usr/bin/
COPY grafana.mjs /
USER 472:0
ENTRYPOINT ["node", "/grafana.mjs"]
