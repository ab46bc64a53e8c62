// Package alerttest holds the tests that send messages of alerts to programs that other
// projects make: Alertmanager of Prometheus, and a mail server. The package owns no
// production code. What a platform's documents say is checked in package channel; these
// tests check that a real receiver understands it.
package alerttest
