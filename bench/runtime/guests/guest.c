// The guest of most rows: four handlers and some work without the host.
#include <stdint.h>

#define IMPORT(name) __attribute__((import_module("wheelwork_v1"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

IMPORT("input_read") int32_t input_read(int64_t off, void *to, uint32_t cap);
IMPORT("output_write") int32_t output_write(const void *from, uint32_t len);
IMPORT("job_next") int32_t job_next(int32_t timeout_ms);
IMPORT("job_done") int32_t job_done(int32_t status);

static uint8_t in[64];
static uint64_t out;
static volatile uint8_t area[96 << 10];

#ifdef FAR // the compiler does not know where the pages are
static volatile uint32_t start;
#define PAGE(i) (((i) << 12) + start)
#else
#define PAGE(i) ((i) << 12)
#endif

// echo answers 64 bytes with 8.
static int32_t echo(void) {
  int32_t n = input_read(0, in, sizeof in);
  out = (uint64_t)(uint32_t)n << 32 | in[0];
  return output_write(&out, sizeof out);
}

EXPORT("wheelwork_handle") int32_t handle(int32_t handler) {
  switch (handler) {
  case 1: // pages: seven more pages are written to
    for (uint32_t i = 0; i < 7; i++) area[PAGE(i)] = handler;
    break;
  case 2: // all: something is written to everywhere
    for (uint32_t i = 0; i < sizeof area; i += 256) area[i] = handler;
    break;
  case 3: // loop: for ever
    for (;;) area[0]++;
  }
  return echo();
}

EXPORT("wheelwork_run") int32_t run(int32_t handler) {
  int32_t jobs = 0;
  for (; job_next(0) == 1; jobs++) job_done(handle(handler));
  return jobs;
}

EXPORT("fnv") uint32_t fnv(uint32_t rounds) {
  uint32_t h = 2166136261u;
  for (uint32_t i = 0; i < rounds; i++) h = (h ^ (i & 0xff)) * 16777619u;
  return h;
}

EXPORT("fib") uint32_t fib(uint32_t n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

// crc is a loop of loads.
static uint32_t table[256];
EXPORT("crc") uint32_t crc(uint32_t rounds) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t r = i;
    for (int k = 0; k < 8; k++) r = r & 1 ? (r >> 1) ^ 0xEDB88320u : r >> 1;
    table[i] = r;
  }
  uint32_t c = ~0u;
  for (uint32_t i = 0; i < rounds; i++) c = table[(c ^ i) & 255] ^ (c >> 8);
  return c;
}

// sort is a loop of loads and stores.
static uint32_t numbers[4096];
EXPORT("sort") uint32_t sort(uint32_t n) {
  uint32_t s = 12345;
  for (uint32_t i = 0; i < n; i++) numbers[i] = s = s * 1664525u + 1013904223u;
  for (uint32_t gap = n / 2; gap > 0; gap /= 2)
    for (uint32_t i = gap; i < n; i++) {
      uint32_t t = numbers[i], j = i;
      for (; j >= gap && numbers[j - gap] > t; j -= gap) numbers[j] = numbers[j - gap];
      numbers[j] = t;
    }
  return numbers[n / 2];
}
