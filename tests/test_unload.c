/* test_unload.c - a program that loads the shared library, lets it start threads and install a signal
 * handler, and closes it: the code of both must stay in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dsmoe.h"

typedef dsmoe_status measure_fn(int n_threads, double seconds, const void *memory, size_t size,
                                dsmoe_machine *machine, dsmoe_error *error);
typedef dsmoe_status open_fn(const char *path, dsmoe_model **model, dsmoe_error *error);
typedef void free_fn(dsmoe_model *model);

/* A function of the library; dlsym gives an object's address. */
static void find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    assert_non_null(address);
    memcpy(function, &address, sizeof address);
}

static void start_threads(void *library)
{
    enum { SIZE = 64 << 20 };
    measure_fn *measure;
    dsmoe_machine machine;
    char *memory = calloc(1, SIZE);
    assert_non_null(memory);
    find(library, "dsmoe_machine_measure", &measure);
    assert_int_equal(measure(3, 0.01, memory, SIZE, &machine, NULL), DSMOE_OK);
    free(memory);
}

static void install_handler(void *library)
{
    open_fn *open_model;
    free_fn *free_model;
    dsmoe_model *model;
    find(library, "dsmoe_model_open", &open_model);
    find(library, "dsmoe_model_free", &free_model);
    assert_int_equal(open_model(TEST_DATA "/lm/base", &model, NULL), DSMOE_OK);
    free_model(model);
}

static void test_close(void **state)
{
    (void)state;
    void *library = dlopen(SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    const char *(*version)(void);
    find(library, "dsmoe_version", &version);
    install_handler(library);
    start_threads(library);
    assert_int_equal(dlclose(library), 0);

    Dl_info where;
    struct sigaction action;
    assert_int_equal(sigaction(SIGBUS, NULL, &action), 0);
    void *handler;
    memcpy(&handler, &action.sa_sigaction, sizeof handler);
    assert_int_not_equal(dladdr(handler, &where), 0);
    usleep(100000); /* the threads go to sleep meanwhile, in the library's code */
    assert_string_equal(version(), DSMOE_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
