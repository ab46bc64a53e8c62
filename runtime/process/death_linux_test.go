package process

const parentDeathSignal = true
