# What stands in for n8n: see n8n.mjs. Its user and home are those of n8n's image.
FROM paddock-base:trixie
COPY node /usr/bin/
COPY workflow.mjs n8n.mjs /stand-ins/
RUN useradd --create-home node && mkdir /home/node/.n8n && chown node /home/node/.n8n && \
    chmod 755 /stand-ins/n8n.mjs && ln -s /stand-ins/n8n.mjs /usr/bin/n8n
USER node
ENV HOME=/home/node
ENTRYPOINT ["n8n"]
