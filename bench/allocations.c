/* Counts the blocks that Python requests of its allocators for memory (1) and objects (2), between start and stop. */
#include <stddef.h>

/* As PyMemAllocatorEx in Python's headers, which need not be installed. */
typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Allocator;

extern void PyMem_GetAllocator(int domain, Allocator *allocator);
extern void PyMem_SetAllocator(int domain, Allocator *allocator);

static Allocator before[3];
static unsigned long counted_blocks, counted_bytes;

static void count(size_t size) {
    counted_blocks++;
    counted_bytes += size;
}

static void *counting_malloc(void *context, size_t size) {
    Allocator *real = context;
    count(size);
    return real->malloc(real->context, size);
}

static void *counting_calloc(void *context, size_t elements, size_t size) {
    Allocator *real = context;
    count(elements * size);
    return real->calloc(real->context, elements, size);
}

static void *counting_realloc(void *context, void *block, size_t size) {
    Allocator *real = context;
    count(size);
    return real->realloc(real->context, block, size);
}

static void counting_free(void *context, void *block) {
    Allocator *real = context;
    real->free(real->context, block);
}

void start(void) {
    counted_blocks = counted_bytes = 0;
    for (int domain = 1; domain < 3; domain++) {
        PyMem_GetAllocator(domain, &before[domain]);
        Allocator counting = {&before[domain], counting_malloc, counting_calloc, counting_realloc, counting_free};
        PyMem_SetAllocator(domain, &counting);
    }
}

void stop(void) {
    for (int domain = 1; domain < 3; domain++)
        PyMem_SetAllocator(domain, &before[domain]);
}

unsigned long blocks(void) { return counted_blocks; }
unsigned long bytes(void) { return counted_bytes; }
