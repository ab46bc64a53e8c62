// Traps of which a trace has to name the line. The numbers of the lines are
// written in lines_test.go.
#define EXPORT(name) __attribute__((export_name(name)))
#define NOINLINE __attribute__((noinline))
#define INLINE __attribute__((always_inline))

static volatile int table[64];
static volatile int zero;

NOINLINE static int divide(int a, int b) {
  table[a & 63] = b;
  return a / b; // line 12
}

INLINE static inline int load(volatile int *p, int n) {
  table[n & 63] = n;
  return p[n]; // line 17
}

INLINE static inline int add(volatile int *p, int n) {
  int s = zero;
  if (n & 1)
    s += load(p, n); // line 23
  return s;
}

NOINLINE static int far(int n) {
  volatile int *p = (volatile int *)0x7ffffff0;
  for (int i = 0; i < n; i++)
    table[i & 63] += i;
  return add(p, n); // line 31
}

NOINLINE static int sum(int n) {
  int s = 0;
  for (int i = n; i >= 0; i--) {
    table[i & 63] = s;
    s += divide(n, i + zero); // line 38
  }
  return s;
}

EXPORT("wheelwork_handle") int handle(int n) {
  switch (n) {
  case 0:
    return sum(3); // line 46
  case 1:
    return far(5); // line 48
  case 2:
    __builtin_trap(); // line 50
  }
  return 0;
}
