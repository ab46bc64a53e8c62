package planned

// SetWrote sets the function that gets the path of the written file, before it is read back.
func (c *Config) SetWrote(f func(file string)) { c.wrote = f }
