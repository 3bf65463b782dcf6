/* test_alloc.c - memory that cannot be had: every allocation of every function that allocates fails
 * once, and each time the function must say so, leave nothing behind and work when called again.
 * And: the passes of a layer allocate nothing at all.
 *
 * The linker sends the library's calls of malloc, mmap and their family through this file (--wrap).
 * jansson, a library of its own, is left out: where it has no memory for the next character of a
 * string it drops that character, and may end in an assertion of its own. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- counting allocations ------------------------------------------------------------------- */

static long n_allocations, n_live;
static long fail_at = -1; /* the number of the allocation that is refused; none if negative */

static bool refused(void) { return n_allocations++ == fail_at; }

static void *counted(void *memory)
{
    n_live += memory != NULL;
    return memory;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __real_munmap(void *memory, size_t size);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *memory, size_t size);

void *__wrap_malloc(size_t size) { return refused() ? NULL : counted(__real_malloc(size)); }

void *__wrap_calloc(size_t count, size_t size)
{
    return refused() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (refused()) return NULL;
    n_live -= memory != NULL;
    return counted(__real_realloc(memory, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text) { return refused() ? NULL : counted(__real_strdup(text)); }

void __wrap_free(void *memory)
{
    n_live -= memory != NULL;
    __real_free(memory);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    if (refused()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *memory = __real_mmap(at, size, protection, flags, file, offset);
    n_live += memory != MAP_FAILED;
    return memory;
}

int __wrap_munmap(void *memory, size_t size)
{
    n_live--;
    return __real_munmap(memory, size);
}

/* ---- failing at every point ----------------------------------------------------------------- */

/* Calls a function and gives back what it made. What maps a file may call that an I/O error. */
typedef dsmoe_status attempt(dsmoe_error *error);

static void check_failures(const char *name, attempt *run, dsmoe_status expected)
{
    dsmoe_error error;
    long live = n_live, n = 0;
    for (;; n++) {
        memset(&error, 0, sizeof error);
        fail_at = n;
        n_allocations = 0;
        dsmoe_status status = run(&error);
        bool reached = n_allocations > n;
        fail_at = -1;
        if (n_live != live) fail_msg("%s leaks when allocation %ld fails", name, n);
        if (status != DSMOE_OK && (error.status != status || !error.message[0]))
            fail_msg("%s gives no reason when allocation %ld fails", name, n);
        if (!reached) {
            if (status != DSMOE_OK) fail_msg("%s: %s", name, error.message);
            break;
        }
        if (status != DSMOE_ERROR_MEMORY && status != expected)
            fail_msg("%s, allocation %ld fails: status %d, \"%s\"", name, n, status, error.message);
    }
    if (n == 0) fail_msg("%s allocates nothing", name);
}

static dsmoe_layer_config config;
static dsmoe_layer_weights *weights;

static dsmoe_status make_weights(dsmoe_error *error)
{
    dsmoe_layer_weights *made = NULL;
    dsmoe_status status = dsmoe_layer_weights_create(&config, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_layer_weights_free(made);
    return status;
}

static dsmoe_status make_layer(dsmoe_error *error)
{
    dsmoe_layer *made = NULL;
    dsmoe_status status = dsmoe_layer_create(&config, weights, &made, error);
    assert_true((status == DSMOE_OK) == (made != NULL));
    dsmoe_layer_free(made);
    return status;
}

static dsmoe_status measure_device_loss(dsmoe_error *error)
{
    float scores[6] = {0.5f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f};
    int32_t topk_idx[2] = {0, 1};
    double loss;
    return dsmoe_device_loss(&config, (dsmoe_routing){scores, topk_idx, NULL}, 1, 2, &loss, error);
}

static dsmoe_status measure_machine(dsmoe_error *error)
{
    dsmoe_machine machine;
    static float memory[(64 << 20) / sizeof(float)];
    return dsmoe_machine_measure(1, 0.01, memory, sizeof memory, &machine, error);
}

static dsmoe_status make_plan(dsmoe_error *error)
{
    dsmoe_plan plan;
    dsmoe_status status = dsmoe_plan_make(16, 2, 4, 1, 2048, 5632, &plan, error);
    dsmoe_plan_free(&plan);
    return status;
}

static dsmoe_status count_combinations(dsmoe_error *error)
{
    char *digits = NULL;
    dsmoe_status status = dsmoe_combinations(64, 8, &digits, error);
    assert_true((status == DSMOE_OK) == (digits != NULL));
    free(digits);
    return status;
}

static dsmoe_status count_no_combinations(dsmoe_error *error)
{
    char *digits = NULL;
    dsmoe_status status = dsmoe_combinations(3, 8, &digits, error);
    assert_true((status == DSMOE_OK) == (digits != NULL));
    free(digits);
    return status;
}

static dsmoe_status read_config(dsmoe_error *error)
{
    dsmoe_config read;
    return dsmoe_config_read(TEST_DATA "/config/deepseek-moe-16b.json", &read, error);
}

static dsmoe_status verify_file(dsmoe_error *error)
{
    bool all_ok;
    dsmoe_status status = dsmoe_verify_layer_file(TEST_DATA "/layer/one_token.safetensors", 1e-5, 1,
                                                  NULL, NULL, &all_ok, error);
    assert_true(all_ok == (status == DSMOE_OK));
    return status;
}

static void test_failures(void **state)
{
    (void)state;
    const dsmoe_status memory = DSMOE_ERROR_MEMORY;
    config = small_config(8, 4, 6, 2, 1);
    assert_int_equal(dsmoe_layer_weights_create(&config, &weights, NULL), DSMOE_OK);
    check_failures("dsmoe_layer_weights_create", make_weights, memory);
    check_failures("dsmoe_layer_create", make_layer, memory);
    check_failures("dsmoe_device_loss", measure_device_loss, memory);
    check_failures("dsmoe_plan_make", make_plan, memory);
    check_failures("dsmoe_combinations", count_combinations, memory);
    check_failures("dsmoe_combinations of none", count_no_combinations, memory);
    check_failures("dsmoe_config_read", read_config, DSMOE_ERROR_IO);
    check_failures("dsmoe_verify_layer_file", verify_file, DSMOE_ERROR_IO);
    check_failures("dsmoe_machine_measure", measure_machine, memory);
    dsmoe_layer_weights_free(weights);
}

/* ---- nothing is allocated while a layer runs ------------------------------------------------ */

static void run_passes(fixture *f)
{
    fixture_infer(f);
    assert_int_equal(
        dsmoe_layer_route(f->layer, f->x, f->n_tokens, (dsmoe_routing){0}, &f->workspace, NULL),
        DSMOE_OK);
    fixture_forward(f);
    fixture_backward(f, false);
}

static void test_passes_allocate_nothing(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        dsmoe_layer_config c = small_config(40, 20, 6, 2, 1);
        c.n_device_groups = 2;
        c.device_loss_alpha = 0.05f;
        fixture f = fixture_make(c, 2, 1500, n_threads, 5);
        run_passes(&f); /* threads start once */
        long before = n_allocations;
        run_passes(&f);
        assert_int_equal(n_allocations, before);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_passes_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
