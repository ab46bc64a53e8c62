# An image with the binary and nothing else; see docs/install.md.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
ARG COMMIT=""
ARG DATE=""
ARG STAMPS=github.com/wheelworkhq/wheelwork/internal/version
RUN CGO_ENABLED=0 go build -trimpath -o /out/wheelwork \
      -ldflags "-s -w -X $STAMPS.release=$VERSION -X $STAMPS.commit=$COMMIT -X $STAMPS.date=$DATE" ./cmd/wheelwork \
 && mkdir -p /out/data /out/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/wheelwork /wheelwork
# A numeric user, so that an orchestrator can see that it is not root.
COPY --from=build --chown=65532:65532 --chmod=700 /out/data /data
COPY --from=build --chown=65532:65532 --chmod=700 /out/tmp /tmp
USER 65532:65532
ENV WHEELWORK_DATA=/data
WORKDIR /data
VOLUME /data
EXPOSE 7700
# WHEELWORK_URL names the process if it is not at http://127.0.0.1:7700, as a host with
# --metrics-listen is not.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/wheelwork", "health", "--timeout", "4s"]
ENTRYPOINT ["/wheelwork"]
CMD ["server"]
