# The program in a container:
#
#   docker build -t denseformer .
#   docker run --rm -v "$PWD:/work" denseformer train runs/a --preset tiny --data data
#
# Nothing else of the project needs this file.
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends dpkg-dev file
COPY . /source
RUN /source/scripts/package /package

FROM debian:12
COPY --from=build /package/*.deb /tmp/
RUN apt-get update && apt-get install -y /tmp/denseformer_*.deb && rm -rf /tmp/*.deb /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["denseformer"]
