// The definitions of Kueue's kinds, for tests on a real API server. Nothing of it is built.
module tdcs.io/local/kueue

go 1.26.0

require sigs.k8s.io/kueue v0.19.2
