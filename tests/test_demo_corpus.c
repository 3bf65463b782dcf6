/* test_demo_corpus.c - the demo's text: graders agree with the makers and with answers worked out by hand,
 * no exam question is in the corpus, the demo's folder leaves other files alone; and the numbers that
 * describe how experts specialise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "study/demo_corpus.h"
#include "cli/demo_folder.h"
#include "study/demo_routing.h"
#include "study/demo_study.h"
#include "scratch.h"

enum { N_LOOKED_AT = 500, SEED = 7 };

static int find_kind(const char *name)
{
    int kind = 0;
    while (kind < DEMO_N_KINDS && strcmp(demo_kinds[kind].name, name)) kind++;
    assert_true(kind < DEMO_N_KINDS);
    return kind;
}

/* ---- makers and graders ---------------------------------------------------------------------- */

static void examples_are_plain_and_right(void **state)
{
    (void)state;
    for (int kind = 0; kind < DEMO_N_KINDS; kind++)
        for (int i = 0; i < N_LOOKED_AT; i++) {
            demo_example e;
            char prompt[DEMO_TEXT];
            demo_make(kind, SEED, i % 2, i, &e);
            assert_int_equal(strlen(e.text), e.length);
            assert_in_range(e.length, 1, DEMO_TEXT - 2); /* it was not cut off */
            assert_in_range(e.prompt_length, 1, e.length - 1);
            for (size_t j = 0; j < e.length; j++) /* no escapes in JSON */
                assert_true(e.text[j] >= ' ' && e.text[j] <= '~' && !strchr("\"\\", e.text[j]));
            demo_prompt(&e, prompt);
            if (!demo_kinds[kind].grade(prompt, e.text + e.prompt_length))
                fail_msg("%s: '%s' is graded wrong", demo_kinds[kind].name, e.text);
        }
}

/* Any change to a right answer makes it wrong. */
static void spoilt_answers_are_wrong(void **state)
{
    (void)state;
    for (int kind = 0; kind < DEMO_N_KINDS; kind++)
        for (int i = 0; i < N_LOOKED_AT / 10; i++) {
            demo_example e;
            char prompt[DEMO_TEXT], answer[DEMO_TEXT + 8];
            demo_make(kind, SEED, false, i, &e);
            demo_prompt(&e, prompt);
            const char *right = e.text + e.prompt_length;
            assert_false(demo_kinds[kind].grade(prompt, ""));
            for (size_t j = 0; j <= strlen(right); j++) {
                static const char others[] = "#1a )";
                for (const char *other = others; *other; other++) {
                    snprintf(answer, sizeof answer, "%s", right);
                    if (answer[j] == *other) continue;
                    if (!answer[j]) answer[j + 1] = '\0';
                    answer[j] = *other;
                    if (demo_kinds[kind].grade(prompt, answer))
                        fail_msg("%s: '%s' + '%s' is graded right", demo_kinds[kind].name, prompt,
                                 answer);
                }
                snprintf(answer, sizeof answer, "%.*s", (int)j, right);
                assert_true(demo_kinds[kind].grade(prompt, answer) == (j == strlen(right)));
            }
        }
}

static void answers_by_hand(void **state)
{
    static const struct {
        const char *kind, *prompt, *answer;
        bool right;
    } cases[] = {
        {"sums", "add 37 + 8 =", " 45", true},
        {"sums", "add 37 + 8 =", " 35", false},
        {"sums", "add 37 + 8 =", " 045", false},
        {"counting", "count 14, 17", ", 20, 23, 26, 29", true},
        {"counting", "count 14, 17", ", 20, 23, 26, 30", false},
        {"counting", "count 14, 17", ", 20, 23, 26, 29, 32", false},
        {"brackets", "close ( [ ] { with", " } )", true},
        {"brackets", "close ( [ ] { with", " ) }", false},
        {"brackets", "close ( [ ] { with", " } ) ( )", false},
        {"brackets", "close ( [ ] { with", "})  ", false},
        {"sorting", "sort d b a c:", " a b c d", true},
        {"sorting", "sort d b a c:", " a b c e", false},
        {"sorting", "sort d b a c:", " a b b d", false},
        {"sorting", "sort d b a c:", " a c b d", false},
        {"dates", "after Tuesday 27 February:", " Wednesday 28 February, Thursday 1 March", true},
        {"dates", "after Tuesday 27 February:", " Wednesday 28 February, Thursday 29 February",
         false},
        {"dates", "after Sunday 31 December:", " Monday 1 January, Tuesday 2 January", true},
        {"dates", "after Sunday 31 December:", " Tuesday 1 January, Wednesday 2 January", false},
        {"dates", "after Thursday 30 April:", " Friday 1 May, Saturday 2 May", true},
        {"dates", "after Someday 30 April:", " Monday 1 May, Tuesday 2 May", false},
        {"records", "name Ada, city Rome, pet cat | pet", " cat, name Ada, city Rome", true},
        {"records", "name Ada, city Rome, pet cat | pet", " cat, city Rome, name Ada", true},
        {"records", "name Ada, city Rome, pet cat | pet", " dog, city Rome, name Ada", false},
        {"records", "name Ada, city Rome, pet cat | pet", " cat, city Rome, pet cat", false},
        {"records", "name Ada, city Rome, pet cat | pet", " cat, city Rom, name Ada", false},
        {"records", "name Ada, city Rome, pet cat | pet", " cat, city Rome", false},
        {"stories", "Ben saw a kite in the park.",
         " The kite was old, but Ben liked the kite. So Ben took the kite home from the park.",
         true},
        {"stories", "Ben saw a kite in the park.",
         " The kite was old, but Ben liked the kite. So Ben took the kite home from the barn.",
         false},
        {"stories", "Ben saw a kite in the park.",
         " The kite was old, but Ada liked the kite. So Ben took the kite home from the park.",
         false},
        {"stories", "Ben saw a kite in the park.",
         " The drum was old, but Ben liked the drum. So Ben took the drum home from the park.",
         false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (demo_kinds[find_kind(cases[i].kind)].grade(cases[i].prompt, cases[i].answer) !=
            cases[i].right)
            fail_msg("'%s' + '%s'", cases[i].prompt, cases[i].answer);
}

/* ---- the corpus and the exam ----------------------------------------------------------------- */

static char *read_all(const char *name, size_t *size)
{
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *size, file), *size);
    text[*size] = '\0';
    fclose(file);
    return text;
}

static void path_of(char out[400], const char *folder, int kind)
{
    snprintf(out, 400, "%s/%s/%s/examples.jsonl", directory, folder, demo_kinds[kind].name);
}

static void remove_corpus(const char *folder)
{
    char name[400];
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        path_of(name, folder, kind);
        assert_int_equal(unlink(name), 0);
        *strrchr(name, '/') = '\0';
        assert_int_equal(rmdir(name), 0);
    }
    snprintf(name, sizeof name, "%s/%s", directory, folder);
    assert_int_equal(rmdir(name), 0);
}

static demo_size write_corpus(const char *folder, uint64_t seed)
{
    char name[400];
    demo_size size;
    snprintf(name, sizeof name, "%s/%s", directory, folder);
    assert_int_equal(demo_corpus_write(name, seed, &size, NULL), DSMOE_OK);
    return size;
}

/* No example in the corpus begins with a prompt of the exam. */
static void exam_is_not_in_the_corpus(void **state)
{
    (void)state;
    demo_size size = write_corpus("corpus", SEED);
    assert_in_range(size.n_bytes, 500 * 1000, 4 * 1000 * 1000);
    int64_t n_lines = 0;
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        demo_example exam[DEMO_EXAM];
        char name[400], line[DEMO_TEXT + 16], prompt[DEMO_TEXT];
        size_t length;
        path_of(name, "corpus", kind);
        char *text = read_all(name, &length);
        for (size_t i = 0; i < length; i++) n_lines += text[i] == '\n';
        assert_true(demo_exam(kind, SEED, exam, DEMO_EXAM));
        for (int i = 0; i < DEMO_EXAM; i++) {
            demo_prompt(&exam[i], prompt);
            snprintf(line, sizeof line, "{\"text\": \"%s", prompt);
            if (strstr(text, line)) fail_msg("'%s' is in the corpus", prompt);
            for (int j = 0; j < i; j++)
                assert_true(strncmp(exam[j].text, prompt, exam[j].prompt_length) ||
                            exam[j].prompt_length != exam[i].prompt_length);
        }
        demo_example known;
        demo_make(kind, SEED, false, 3, &known);
        snprintf(line, sizeof line, "{\"text\": \"%s\"}\n", known.text);
        assert_non_null(strstr(text, line)); /* the search itself works */
        free(text);
    }
    assert_int_equal(n_lines, size.n_examples);
    remove_corpus("corpus");
}

static void a_seed_is_a_corpus(void **state)
{
    (void)state;
    write_corpus("a", 1);
    write_corpus("b", 1);
    write_corpus("c", 2);
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        static const char *const folders[] = {"a", "b", "c"};
        char *texts[3], name[400];
        size_t sizes[3];
        for (int i = 0; i < 3; i++) {
            path_of(name, folders[i], kind);
            texts[i] = read_all(name, &sizes[i]);
        }
        assert_string_equal(texts[0], texts[1]);
        assert_string_not_equal(texts[0], texts[2]);
        for (int i = 0; i < 3; i++) free(texts[i]);
    }
    remove_corpus("a");
    remove_corpus("b");
    remove_corpus("c");
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void make_file(const char *name)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fclose(file);
}

static bool exists(const char *folder, const char *name)
{
    char full[512];
    struct stat info;
    snprintf(full, sizeof full, "%s/%s", folder, name);
    return lstat(full, &info) == 0;
}

static int prepare_quietly(const char *folder)
{
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    assert_non_null(freopen("/dev/null", "w", stderr));
    int exit_code = demo_folder_prepare(folder, 3, false);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    return exit_code;
}

/* A user's files among the demo's files are not removed. */
static void folders_of_a_demo_keep_others_files(void **state)
{
    (void)state;
    static const char *const files[] = {"corpus/mine.txt", "corpus/sums/mine.txt",
                                        "checkpoints/mine", "corpus/.hidden"};
    static const char *const folders[] = {"corpus", "corpus/sums", "checkpoints"};
    char folder[400], name[512];
    snprintf(folder, sizeof folder, "%s/kept", directory);
    assert_int_equal(demo_folder_prepare(folder, 3, false), CLI_OK);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(name, 0777), 0);
    }
    snprintf(name, sizeof name, "%s/report.html", folder);
    make_file(name);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, files[i]);
        make_file(name);
        assert_int_equal(prepare_quietly(folder), CLI_FAILURE);
        assert_true(exists(folder, files[i]) && exists(folder, "report.html"));
        unlink(name);
    }
    assert_int_equal(demo_folder_prepare(folder, 3, false), CLI_OK);
    assert_false(exists(folder, "corpus") || exists(folder, "checkpoints"));
    snprintf(name, sizeof name, "%s/demo.txt", folder);
    unlink(name);
    rmdir(folder);
}

/* An earlier demo's files are removed, a user's files are kept. Links are removed, but not what they point
 * to. */
static void only_a_demo_is_replaced(void **state)
{
    (void)state;
    char folder[400], name[512], treasure[400];
    snprintf(folder, sizeof folder, "%s/demo", directory);
    snprintf(treasure, sizeof treasure, "%s/treasure", directory);
    assert_int_equal(demo_folder_prepare(folder, 3, false), CLI_OK);
    static const char *const files[] = {
        "settings.json", "report.html",         "metrics.jsonl",  "events.out.tfevents.1",
        "notes.txt",     "tokenizer-notes.txt", "report.html.txt"};
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, files[i]);
        make_file(name);
    }
    assert_int_equal(mkdir(treasure, 0777), 0);
    snprintf(name, sizeof name, "%s/gold", treasure);
    make_file(name);
    snprintf(name, sizeof name, "%s/corpus", folder);
    assert_int_equal(symlink(treasure, name), 0);
    assert_int_equal(demo_folder_prepare(folder, 3, false), CLI_OK);
    for (int i = 0; i < 4; i++) assert_false(exists(folder, files[i]));
    assert_false(exists(folder, "corpus"));
    assert_true(exists(folder, "notes.txt") && exists(folder, "demo.txt"));
    for (int i = 5; i < 7; i++) {
        assert_true(exists(folder, files[i]));
        snprintf(name, sizeof name, "%s/%s", folder, files[i]);
        unlink(name);
    }
    assert_true(exists(treasure, "gold"));

    /* without demo.txt the folder may belong to the user */
    snprintf(name, sizeof name, "%s/demo.txt", folder);
    unlink(name);
    snprintf(name, sizeof name, "%s/settings.json", folder);
    make_file(name);
    assert_int_equal(prepare_quietly(folder), CLI_FAILURE);
    assert_true(exists(folder, "settings.json") && !exists(folder, "demo.txt"));
    unlink(name);
    snprintf(name, sizeof name, "%s/notes.txt", folder);
    assert_int_equal(prepare_quietly(name), CLI_FAILURE); /* a file */
    unlink(name);
    snprintf(name, sizeof name, "%s/.keep", folder);
    make_file(name);
    assert_int_equal(demo_folder_prepare(folder, 3, false), CLI_OK); /* empty */
    unlink(name);
    snprintf(name, sizeof name, "%s/demo.txt", folder);
    unlink(name);
    rmdir(folder);
    snprintf(name, sizeof name, "%s/gold", treasure);
    unlink(name);
    rmdir(treasure);
}

/* ---- how experts specialise ------------------------------------------------------------------ */

enum { N_EXPERTS = 2 * DEMO_N_KINDS };

/* Layer 0: no preferences. Layer 1: two experts for each kind, the second one used three times as often,
 * and the kinds in reverse order. */
static demo_routing made_up(void)
{
    demo_routing routing = {.n_layers = 2, .n_experts = N_EXPERTS, .k = 1};
    routing.counts = calloc(2 * DEMO_N_KINDS * N_EXPERTS, sizeof *routing.counts);
    routing.layers = calloc(2, sizeof *routing.layers);
    assert_true(routing.counts && routing.layers);
    for (int kind = 0; kind < DEMO_N_KINDS; kind++) {
        for (int e = 0; e < N_EXPERTS; e++) routing.counts[kind * N_EXPERTS + e] = 5;
        int64_t *second = routing.counts + (DEMO_N_KINDS + kind) * N_EXPERTS;
        int first = 2 * (DEMO_N_KINDS - 1 - kind);
        second[first] = 10 * (kind + 1); /* long kinds do not count more than short ones */
        second[first + 1] = 30 * (kind + 1);
    }
    return routing;
}

static void specialisation_in_numbers(void **state)
{
    (void)state;
    demo_routing routing = made_up();
    int32_t order[N_EXPERTS];
    int owner[N_EXPERTS];
    assert_true(fabs(demo_guess_rate(&routing, 0) - 1.0 / DEMO_N_KINDS) < 1e-12);
    assert_true(fabs(demo_guess_rate(&routing, 1) - 1) < 1e-12);
    assert_true(fabs(demo_concentration(&routing, 0) - 1.0 / N_EXPERTS) < 1e-12);
    assert_true(fabs(demo_concentration(&routing, 1) - 0.75) < 1e-12);
    assert_int_equal(demo_best_layer(&routing), 1);
    assert_true(fabs(demo_relative_load(&routing, 1, 0, N_EXPERTS - 1) - 0.75 * N_EXPERTS) < 1e-12);
    demo_order_experts(&routing, 1, order, owner);
    for (int i = 0; i < N_EXPERTS; i++) {
        assert_int_equal(order[i], 2 * (DEMO_N_KINDS - 1 - i / 2) + (i % 2 == 0));
        assert_int_equal(owner[order[i]], i / 2);
    }
    demo_routing_free(&routing);
}

/* Token 0 is in two kinds and goes to a different expert in each. Token 1 is in four kinds and goes to the
 * same expert in all. Token 2 is in one kind only. Token 3 is too rare in its second kind. */
static void shared_tokens_in_numbers(void **state)
{
    enum { VOCAB = 4 };
    (void)state;
    demo_routing routing = {.n_layers = 1, .n_experts = N_EXPERTS, .k = 1, .vocab_size = VOCAB};
    routing.by_token = calloc(DEMO_N_KINDS * VOCAB * N_EXPERTS, sizeof *routing.by_token);
    assert_non_null(routing.by_token);
#define AT(kind, token, expert) routing.by_token[((kind)*VOCAB + (token)) * N_EXPERTS + (expert)]
    AT(0, 0, 3) = 100;
    AT(1, 0, 4) = 300; /* its larger number does not count more */
    for (int kind = 0; kind < 4; kind++) AT(kind, 1, 5) = 100;
    AT(2, 2, 6) = 1000;
    AT(5, 3, 7) = 1000;
    AT(6, 3, 8) = 5;
#undef AT
    double chance, rate = demo_shared_guess_rate(&routing, 0, &chance);
    assert_true(fabs(rate - (1 + 0.25) / 2) < 1e-12);
    assert_true(fabs(chance - (0.5 + 0.25) / 2) < 1e-12);
    demo_routing_free(&routing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_are_plain_and_right),
        cmocka_unit_test(spoilt_answers_are_wrong),
        cmocka_unit_test(answers_by_hand),
        cmocka_unit_test(exam_is_not_in_the_corpus),
        cmocka_unit_test(a_seed_is_a_corpus),
        cmocka_unit_test(folders_of_a_demo_keep_others_files),
        cmocka_unit_test(only_a_demo_is_replaced),
        cmocka_unit_test(specialisation_in_numbers),
        cmocka_unit_test(shared_tokens_in_numbers),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
