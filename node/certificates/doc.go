// Package certificates has the certificate of a process: of a server, which signs its own with the authority of
// the installation, and of a host, which joins with a token and then renews its certificate.
package certificates
