/* test_asserts.c - the library under test is built with asserts: a mistake of the caller ends the
 * process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/data_order.h"

static void test_a_mistake_ends_the_process(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO); /* the message of assert is expected */
        data_order_at(3, 0, 0, 3);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        fail_msg("place 3 of an order of 3 was accepted: asserts are compiled out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_mistake_ends_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
