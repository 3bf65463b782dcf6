/* test_run_ranks.c - training runs with several ranks: the same checkpoints and log as on one machine,
 * even if the number of ranks changes; failures of one rank, which all ranks report in the same words; and
 * ranks that die at any moment without loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "model/config_write.h"
#include "run_witness.h"
#include "scratch.h"
#include "socket_peers.h"

enum { LOST = 3 }; /* the exit code of a rank that a run reported as lost */

/* ---- runs of ranks -------------------------------------------------------------------------------- */

typedef struct story {
    dsmoe_run_settings settings;
    const char *resume; /* NULL: a new run */
    dsmoe_parallel parallel;
    int n_threads;
    int64_t stop_after;
    int stop_rank;       /* the rank that asks to stop */
    int64_t stop_at_ask; /* at the n-th poll; 0: never */
    int64_t n_asked;
    int bad_rank;         /* a rank that cannot start; -1: none */
    int64_t largest_file; /* the largest file that rank 0 can write; 0: any size */
    dsmoe_status expected;
    const char *words; /* in the error */
} story;

static story story_make(const char *name, dsmoe_parallel parallel)
{
    story s = {.settings = tiny_settings(directory, name),
               .parallel = parallel,
               .n_threads = 1,
               .stop_rank = -1,
               .bad_rank = -1};
    s.settings.accumulate = 3;
    s.settings.device_groups = 2;
    s.settings.log_every = 2;
    s.settings.held_out = 0.5; /* more rows than a unit takes: experts get several pieces */
    s.settings.eval_sequences = 0;
    return s;
}

static bool wants_stop(void *context)
{
    story *s = context;
    return s->stop_at_ask > 0 && ++s->n_asked >= s->stop_at_ask;
}

static int run_story_rank(const dsmoe_peers *peers, void *context)
{
    story *s = context;
    dsmoe_run_options options = {.resume = s->resume,
                                 .peers = peers,
                                 .parallel = s->parallel,
                                 .n_threads = peers->rank == s->bad_rank ? 5000 : s->n_threads,
                                 .stop_after = s->stop_after,
                                 .context = s};
    if (peers->rank == s->stop_rank) options.stop = wants_stop;
    if (s->largest_file > 0 && peers->rank == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)s->largest_file, RLIM_INFINITY});
    }
    dsmoe_error error = {0};
    dsmoe_status status = dsmoe_run(s->resume ? NULL : &s->settings, &options, NULL, &error);
    if (status == DSMOE_ERROR_PEER && s->expected != DSMOE_ERROR_PEER) return LOST;
    if (status != s->expected || (s->words && !strstr(error.message, s->words))) {
        fprintf(stderr, "rank %d: status %d: %s\n", peers->rank, (int)status, error.message);
        return 1;
    }
    return 0;
}

static void run_ranks(story *s, int n_ranks)
{
    assert_true(socket_peers_run(n_ranks, run_story_rank, s, NULL, NULL));
}

/* The run on one machine, with which all others are compared. */
static int make_alone(void **state)
{
    if (make_directory(state)) return -1;
    tiny_write_text(directory);
    tiny_write_config(directory);
    story s = story_make("alone", DSMOE_PARALLEL_DATA);
    return socket_peers_run(1, run_story_rank, &s, NULL, NULL) ? 0 : -1;
}

static int remove_alone(void **state)
{
    (void)state;
    tiny_remove(directory);
    return 0;
}

/* ---- results --------------------------------------------------------------------------------------- */

/* The next line of that type in a log, without what differs between runs; NULL after the last. */
static char *next_line(const char **log, const char *type)
{
    char begins[64];
    snprintf(begins, sizeof begins, "{\"type\":\"%s\",", type);
    const char *line = strstr(*log, begins);
    if (!line) return NULL;
    size_t n = strcspn(line, "\n");
    *log = line + n;
    char *copy = strndup(line, n), *speed = strstr(copy, ",\"tokens_per_s\"");
    if (speed)
        memmove(speed, speed + strcspn(speed + 1, ",") + 1,
                strlen(speed + strcspn(speed + 1, ",") + 1) + 1);
    char *time = strstr(copy, ",\"time\"");
    if (time) *time = '\0';
    return copy;
}

static void assert_same_log(const char *a, const char *b)
{
    static const char *const types[] = {"step", "load", "eval", "routing", "end"};
    size_t size;
    char *x = tiny_read(tiny_path(run_folder(a), "metrics.jsonl"), &size);
    char *y = tiny_read(tiny_path(run_folder(b), "metrics.jsonl"), &size);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *at_x = x, *at_y = y;
        int n = 0;
        for (;; n++) {
            char *line_x = next_line(&at_x, types[i]), *line_y = next_line(&at_y, types[i]);
            if (!line_x || !line_y) {
                assert_true(line_x == line_y);
                break;
            }
            if (strcmp(line_x, line_y)) fail_msg("%s\nis not\n%s", line_y, line_x);
            free(line_x);
            free(line_y);
        }
        assert_true(n > 0);
    }
    free(x);
    free(y);
}

/* The seconds of a step that the log divides into computing, sending and waiting. */
static void assert_times(const char *name, bool expected)
{
    static const char *const parts[] = {"\"computing\":", "\"sending\":", "\"waiting\":"};
    size_t size;
    char *log = tiny_read(tiny_path(run_folder(name), "metrics.jsonl"), &size);
    for (int i = 0; i < 3; i++) {
        int n = 0;
        for (const char *at = log; (at = strstr(at, parts[i])); n++) {
            at += strlen(parts[i]);
            if (!(strtod(at, NULL) >= 0)) fail_msg("%s%.12s", parts[i], at);
        }
        assert_int_equal(n > 0, expected);
    }
    free(log);
}

static void compare(story *s, int n_ranks, const char *name)
{
    run_ranks(s, n_ranks);
    assert_times(name, n_ranks > 1);
    assert_same_end("alone", name);
    assert_same_log("alone", name);
    tiny_remove(run_folder(name));
}

/* ---- tests ------------------------------------------------------------------------------------------- */

static void test_exact(void **state)
{
    (void)state;
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++)
        for (int way = 0; way < 4; way++) {
            story s = story_make("ranks", way & 1 ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA);
            s.n_threads = way & 2 ? 2 : 1;
            compare(&s, n_ranks, "ranks");
        }
}

/* Each time it is resumed with another number of ranks and another division. The first stop comes from a
 * rank other than 0. */
static void test_resume(void **state)
{
    (void)state;
    story s = story_make("parts", DSMOE_PARALLEL_DATA);
    s.stop_rank = 2;
    s.stop_at_ask = 2;
    run_ranks(&s, 3);
    story next = {.resume = run_folder("parts"),
                  .parallel = DSMOE_PARALLEL_EXPERTS,
                  .n_threads = 2,
                  .stop_after = 4,
                  .stop_rank = -1,
                  .bad_rank = -1};
    run_ranks(&next, 2);
    next.parallel = DSMOE_PARALLEL_DATA;
    next.stop_after = 0;
    run_ranks(&next, 4);
    assert_same_end("alone", "parts");
    tiny_remove(run_folder("parts"));
}

/* ---- latent attention, and biases that follow the load ----------------------------------------------- */

static void write_v3_config(const char *folder)
{
    dsmoe_config c = tiny_config();
    dsmoe_error error;
    c.model_type = DSMOE_DEEPSEEK_V3;
    c.kv_lora_rank = 12;
    c.q_lora_rank = 10;
    c.qk_nope_head_dim = 6;
    c.qk_rope_head_dim = 4;
    c.v_head_dim = 7;
    c.scoring_func = DSMOE_SCORING_SIGMOID;
    c.topk_method = DSMOE_TOPK_NOAUX_TC;
    c.n_group = 2;
    c.topk_group = 1;
    c.norm_topk_prob = true;
    c.routed_scaling_factor = 2.5;
    assert_int_equal(mkdir(folder, 0777), 0);
    if (config_write(folder, &c, DSMOE_F32, &error)) fail_msg("%s", error.message);
}

static story v3_story(const char *name, dsmoe_parallel parallel)
{
    story s = story_make(name, parallel);
    snprintf(s.settings.config, sizeof s.settings.config, "%s/v3/config.json", directory);
    s.settings.bias_speed = 0.01;
    return s;
}

static void test_v3(void **state)
{
    (void)state;
    write_v3_config(tiny_path(directory, "v3"));
    story alone = v3_story("v3_alone", DSMOE_PARALLEL_DATA);
    assert_true(socket_peers_run(1, run_story_rank, &alone, NULL, NULL));
    for (int n_ranks = 2; n_ranks <= 4; n_ranks++)
        for (int way = 0; way < 2; way++) {
            story s = v3_story("v3_ranks", way ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA);
            s.n_threads = 1 + n_ranks % 2;
            run_ranks(&s, n_ranks);
            assert_same_end("v3_alone", "v3_ranks");
            assert_same_log("v3_alone", "v3_ranks");
            tiny_remove(run_folder("v3_ranks"));
        }
    story parts = v3_story("v3_parts", DSMOE_PARALLEL_EXPERTS);
    parts.stop_after = 1;
    run_ranks(&parts, 3);
    for (int n_ranks = 2; n_ranks > 0; n_ranks--) {
        parts.resume = run_folder("v3_parts");
        parts.parallel = DSMOE_PARALLEL_DATA;
        parts.stop_after = n_ranks == 2 ? 3 : 0;
        run_ranks(&parts, n_ranks);
    }
    assert_same_end("v3_alone", "v3_parts");
}

/* ---- failures ---------------------------------------------------------------------------------------- */

/* An error of one rank is reported by all ranks. */
static void test_failures(void **state)
{
    (void)state;
    story s = story_make("failed", DSMOE_PARALLEL_DATA);
    snprintf(s.settings.data[0], sizeof s.settings.data[0], "%s/nothing", directory);
    s.expected = DSMOE_ERROR_IO;
    s.words = "nothing";
    run_ranks(&s, 3);
    assert_false(tiny_exists(run_folder("failed")));

    s = story_make("failed", DSMOE_PARALLEL_EXPERTS);
    s.bad_rank = 2;
    s.expected = DSMOE_ERROR_ARGUMENT;
    s.words = "rank 2 on machine2: threads must be 1 to 1024, not 5000";
    run_ranks(&s, 3);
    assert_false(tiny_exists(run_folder("failed")));

    /* A checkpoint is larger than the text, its tokens and the log, so the disk fails at the checkpoint. */
    for (int way = 0; way < 2; way++) {
        s = story_make("failed", way ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA);
        s.largest_file = 60000;
        s.expected = DSMOE_ERROR_IO;
        s.words = "last good checkpoint: none yet";
        run_ranks(&s, 3);
        story next = {
            .resume = run_folder("failed"), .n_threads = 1, .stop_rank = -1, .bad_rank = -1};
        run_ranks(&next, 2);
        assert_same_end("alone", "failed");
        tiny_remove(run_folder("failed"));
    }
}

/* A rank dies at one of its calls. The run can be resumed to the same bits. */
static void test_killed(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        story s = story_make("killed", way & 1 ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA);
        socket_peers_end ends[3];
        assert_true(socket_peers_run(3, run_story_rank, &s, NULL, ends));
        tiny_remove(run_folder("killed"));
        int bad_rank = way & 2 ? 1 : 0;
        int64_t n_calls = ends[bad_rank].n_calls;
        for (int64_t call = 1; call <= n_calls; call += n_calls / 12) {
            socket_peers_options how = {
                .bad_rank = bad_rank, .dies_at_call = call, .time_limit = 20};
            assert_false(socket_peers_run(3, run_story_rank, &s, &how, ends));
            for (int r = 0; r < 3; r++) {
                if (r == bad_rank) assert_int_equal(ends[r].signal, SIGKILL);
                bool is_done = ends[r].exit_code == 0 && call > n_calls - 3; /* the last calls */
                if (r != bad_rank && !is_done) assert_int_equal(ends[r].exit_code, LOST);
            }
            bool began = tiny_exists(tiny_path(run_folder("killed"), "settings.json"));
            story next = s;
            if (began) next.resume = run_folder("killed");
            run_ranks(&next, 1 + (int)(call % 3));
            assert_same_end("alone", "killed");
            tiny_remove(run_folder("killed"));
        }
    }
}

/* If a rank hangs at one of its calls, the others do not wait for ever. They do wait while rank 0 alone
 * works. */
static void test_hung(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        story s = story_make("hung", way & 1 ? DSMOE_PARALLEL_EXPERTS : DSMOE_PARALLEL_DATA);
        socket_peers_options how = {.patience = 3};
        socket_peers_end ends[3];
        assert_true(socket_peers_run(3, run_story_rank, &s, &how, ends));
        tiny_remove(run_folder("hung"));
        how.bad_rank = way & 2 ? 2 : 0;
        how.hangs_at_call = ends[how.bad_rank].n_calls * (1 + way) / 5;
        assert_false(socket_peers_run(3, run_story_rank, &s, &how, ends));
        for (int r = 0; r < 3; r++)
            assert_int_equal(ends[r].exit_code, r == how.bad_rank ? -1 : LOST);
        story next = s;
        next.resume = run_folder("hung");
        run_ranks(&next, 2);
        assert_same_end("alone", "hung");
        tiny_remove(run_folder("hung"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),    cmocka_unit_test(test_resume), cmocka_unit_test(test_v3),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_killed), cmocka_unit_test(test_hung),
    };
    return cmocka_run_group_tests(tests, make_alone, remove_alone);
}
