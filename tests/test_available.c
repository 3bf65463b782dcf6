/* test_available.c - how much memory and how many processors are available: the machine's own figures, the
 * limits of both versions of control groups, and that training refuses a model that does not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "data_files.h"
#include "formats/folder.h"
#include "scratch.h"

static const char *const plenty = "MemTotal:  24000000 kB\nMemAvailable:  1000000 kB\n";

/* Writes FOLDER/NAME with that text, and makes the folders above it. */
static void put(const char *folder, const char *name, const char *text)
{
    char file[300];
    assert_int_equal(folder_make(in_directory(folder), NULL), DSMOE_OK);
    snprintf(file, sizeof file, "%s/%s", folder, name);
    write_text(file, text);
}

static void expect(uint64_t bytes) { assert_int_equal(memory_available_under(directory), bytes); }

static void test_machine(void **state)
{
    (void)state;
    expect(UINT64_MAX); /* no file gives a limit */
    put("proc", "meminfo", plenty);
    expect(1024000000);
    put("proc", "meminfo", "MemAvailable: 99999999999999999999 kB\n");
    expect(UINT64_MAX);
    assert_true(memory_available() > 0);
}

/* Cached pages of files count as available. */
static void test_version_2(void **state)
{
    (void)state;
    put("proc", "meminfo", plenty);
    put("proc/self", "cgroup", "0::/user/job\n");
    expect(1024000000);
    put("sys/fs/cgroup/user/job", "memory.max", "max\n");
    put("sys/fs/cgroup/user/job", "memory.current", "900\n");
    expect(1024000000);
    put("sys/fs/cgroup/user/job", "memory.max", "500000000\n");
    expect(499999100);
    put("sys/fs/cgroup/user/job", "memory.stat", "anon 100\ninactive_file 600\nactive_file 200\n");
    expect(499999900);
    /* The group above has a smaller limit. */
    put("sys/fs/cgroup/user", "memory.max", "2000\n");
    put("sys/fs/cgroup/user", "memory.current", "1500\n");
    expect(500);
    put("sys/fs/cgroup/user", "memory.current", "2500\n");
    expect(0);
}

/* In a container the mount may start at the container's own group. */
static void test_version_1(void **state)
{
    (void)state;
    put("proc", "meminfo", plenty);
    put("proc/self", "cgroup",
        "9:name=systemd:/\n5:cpu,cpuacct:/docker/4f\n4:memory:/docker/4f\n0::/\nodd line\n");
    put("sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory", "memory.usage_in_bytes", "1000\n");
    expect(1024000000);
    put("sys/fs/cgroup/memory", "memory.limit_in_bytes", "700000000\n");
    put("sys/fs/cgroup/memory", "memory.stat", "inactive_file 5\ntotal_inactive_file 400\n");
    expect(699999400);
    put("sys/fs/cgroup/memory/docker/4f", "memory.limit_in_bytes", "80000\n");
    put("sys/fs/cgroup/memory/docker/4f", "memory.usage_in_bytes", "30000\n");
    expect(50000);
}

/* The 16B model with its gradients and moments needs more memory than any machine that runs these tests. */
static void test_trainer_refuses(void **state)
{
    (void)state;
    dsmoe_config config;
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    dsmoe_trainer *trainer;
    dsmoe_error error = {0};
    assert_int_equal(dsmoe_config_preset("16b", &config, NULL), DSMOE_OK);
    if (memory_available() > UINT64_C(300000000000)) skip();
    assert_int_equal(dsmoe_trainer_create(&config, &options, &trainer, &error), DSMOE_ERROR_MEMORY);
    assert_null(trainer);
    if (!strstr(error.message, "takes 273") || !strstr(error.message, "is available"))
        fail_msg("%s", error.message);
}

/* ---- processors ------------------------------------------------------------------------------ */

static void expect_threads(int n) { assert_int_equal(threads_allowed_under(directory), n); }

/* Part of a processor's time counts as one thread. */
static void test_threads_version_2(void **state)
{
    (void)state;
    expect_threads(INT_MAX);
    put("proc/self", "cgroup", "0::/user/job\n");
    expect_threads(INT_MAX);
    put("sys/fs/cgroup/user/job", "cpu.max", "max 100000\n");
    expect_threads(INT_MAX);
    put("sys/fs/cgroup/user/job", "cpu.max", "300000 100000\n");
    expect_threads(3);
    put("sys/fs/cgroup/user/job", "cpu.max", "300001 100000\n");
    expect_threads(4);
    put("sys/fs/cgroup/user/job", "cpu.max", "5000 100000\n");
    expect_threads(1);
    put("sys/fs/cgroup/user/job", "cpu.max", "18446744073709551615 1\n");
    expect_threads(INT_MAX);
    put("sys/fs/cgroup/user", "cpu.max", "250000 100000\n");
    expect_threads(3);
    put("sys/fs/cgroup", "cpu.max", "0 100000\n");
    expect_threads(1);
    put("sys/fs/cgroup", "cpu.max", "100000 0\n"); /* meaningless, so it is ignored */
    expect_threads(3);
}

static void test_threads_version_1(void **state)
{
    (void)state;
    put("proc/self", "cgroup", "6:cpuset:/set\n5:cpuacct,cpu:/docker/4f\n4:memory:/m\n0::/\n");
    put("sys/fs/cgroup/cpu/set", "cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpu/set", "cpu.cfs_period_us", "100000\n");
    expect_threads(INT_MAX); /* the limit is on the cpuset controller's group */
    put("sys/fs/cgroup/cpu/docker/4f", "cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/docker/4f", "cpu.cfs_period_us", "100000\n");
    expect_threads(INT_MAX);
    put("sys/fs/cgroup/cpu/docker/4f", "cpu.cfs_quota_us", "610000\n");
    expect_threads(7);
    put("sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "400000\n");
    expect_threads(7);
    put("sys/fs/cgroup/cpu", "cpu.cfs_period_us", "200000\n");
    expect_threads(2);
}

static void test_threads_here(void **state)
{
    (void)state;
    assert_true(threads_available() >= 1);
    assert_true(threads_available() <= threads_allowed_under(""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, empty_directory, clear_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_machine),         TEST(test_version_2),         TEST(test_version_1),
        TEST(test_trainer_refuses), TEST(test_threads_version_2), TEST(test_threads_version_1),
        TEST(test_threads_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
