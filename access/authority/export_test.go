package authority

import "net/url"

// URI returns a machine as a certificate has it.
func URI(m *Machine, installation string) *url.URL { return m.uri(installation) }
