/* test_tasks.c - questions with known answers: log probabilities of choices against running each choice
 * alone in double arithmetic, written answers against a plain greedy loop, which answers are accepted, and
 * wrong lines. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "made_model.h"
#include "scratch.h"
#include "study/tasks.h"
#include "support.h"

enum { VOCAB = 267, CONTEXT = 600, MOST = 64 };

static char folder[400];
static dsmoe_tokenizer *tokenizer;
static dsmoe_model *model;

static int open_all(void **state)
{
    dsmoe_error error = {0};
    make_directory(state);
    snprintf(folder, sizeof folder, "%s/model", directory);
    mkdir(folder, 0700);
    dsmoe_config config = made_config();
    config.vocab_size = VOCAB;
    config.max_position_embeddings = CONTEXT;
    made_model made = made_model_create(&config, "F32", 11);
    made_model_write(&made, folder, false);
    made_model_free(&made);
    model = open_model(folder);
    must(dsmoe_tokenizer_open(TEST_DATA "/text_cli", &tokenizer, &error), &error, "tokenizer");
    return 0;
}

static int close_all(void **state)
{
    dsmoe_model_free(model);
    dsmoe_tokenizer_free(tokenizer);
    made_model_remove(folder);
    rmdir(folder);
    return remove_directory(state);
}

static dsmoe_tasks *parse(const char *lines)
{
    dsmoe_tasks *tasks;
    dsmoe_error error = {0};
    must(tasks_parse(lines, strlen(lines), "quiz.jsonl", tokenizer, CONTEXT, &tasks, &error),
         &error, "quiz");
    return tasks;
}

/* ---- results of the library -------------------------------------------------------------------- */

typedef struct heard {
    dsmoe_task_result results[MOST];
    double log_probabilities[MOST][TASK_MOST_CHOICES];
    char texts[MOST][256];
    int n;
    double stop_at; /* stop after this many questions; 0: never */
} heard;

static void hear(void *context, const dsmoe_task_result *result)
{
    heard *h = context;
    h->results[h->n] = *result;
    for (int64_t i = 0; i < result->n_choices; i++)
        h->log_probabilities[h->n][i] = result->log_probabilities[i];
    if (result->text) snprintf(h->texts[h->n], sizeof *h->texts, "%s", result->text);
    h->n++;
}

static bool go_on(void *context, double done, double total)
{
    const heard *h = context;
    assert_true(done <= total);
    return h->stop_at == 0 || done < h->stop_at;
}

static dsmoe_task_scores ask(const dsmoe_tasks *tasks, heard *h, dsmoe_status expected)
{
    dsmoe_task_scores scores;
    dsmoe_error error = {0};
    dsmoe_task_options options = {.n_threads = 2, .progress = go_on, .visit = hear, .context = h};
    dsmoe_status status = dsmoe_tasks_run(tasks, model, &options, &scores, &error);
    if (status != expected) fail_msg("status %d: %s", status, error.message);
    return scores;
}

/* ---- the same computed here -------------------------------------------------------------------- */

typedef struct hand {
    dsmoe_sequence *sequence;
    float logits[VOCAB];
} hand;

static hand hand_begin(void) { return (hand){.sequence = make_sequence(model, CONTEXT, 16, 1)}; }

static double log_probability(const float *logits, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < VOCAB; i++) sum += exp(logits[i] - max);
    return logits[id] - max - log(sum);
}

/* log p(choice | question), token by token. The choice's tokens are those after the first n_question. */
static double choice_by_hand(const char *question, const char *rest, int *n_scored)
{
    char text[512];
    int32_t *asked, *whole;
    size_t n_asked, n_whole;
    dsmoe_error error = {0};
    snprintf(text, sizeof text, "%s%s", question, rest);
    must(dsmoe_tokenizer_encode(tokenizer, question, strlen(question), DSMOE_ENCODE_BOS, &asked,
                                &n_asked, &error),
         &error, "question");
    must(dsmoe_tokenizer_encode(tokenizer, text, strlen(text), DSMOE_ENCODE_BOS, &whole, &n_whole,
                                &error),
         &error, "whole");
    hand h = hand_begin();
    double sum = 0;
    for (size_t i = 0; i + 1 < n_whole; i++) {
        decode(h.sequence, whole[i], h.logits);
        if (i + 1 >= n_asked) sum += log_probability(h.logits, whole[i + 1]);
    }
    *n_scored = (int)(n_whole - n_asked);
    free(asked);
    free(whole);
    free_sequence(h.sequence);
    return sum;
}

/* Writes greedily until a line ends or n_most tokens are written. */
static void write_by_hand(const char *question, int n_most, char *out, size_t size)
{
    int32_t *ids;
    size_t n_ids, length = 0;
    dsmoe_error error = {0};
    must(dsmoe_tokenizer_encode(tokenizer, question, strlen(question), DSMOE_ENCODE_BOS, &ids,
                                &n_ids, &error),
         &error, "question");
    hand h = hand_begin();
    prefill(h.sequence, ids, (int64_t)n_ids, h.logits);
    *out = '\0';
    for (int n = 0; n < n_most; n++) {
        int32_t best = 0;
        for (int32_t i = 1; i < VOCAB; i++)
            if (h.logits[i] > h.logits[best]) best = i;
        size_t n_piece;
        const char *piece = dsmoe_tokenizer_piece(tokenizer, best, &n_piece);
        if (best == dsmoe_tokenizer_eos(tokenizer) || memchr(piece, '\n', n_piece)) break;
        assert_true(length + n_piece < size);
        memcpy(out + length, piece, n_piece);
        length += n_piece;
        out[length] = '\0';
        decode(h.sequence, best, h.logits);
    }
    free(ids);
    free_sequence(h.sequence);
}

/* ---- choices ----------------------------------------------------------------------------------- */

/* Three questions: with a frame, without, and with its own delimiter and a blank at the end. */
static const char *const questions[] = {"Question: What is warm?\nAnswer:", "The cat sat on the",
                                        "One, two,"};
static const char *const choices[][4] = {{" fire", " ice and snow", " a", NULL},
                                         {" mat", " moon over the hill", NULL},
                                         {"  three", "  seven hundred", "  t\xc3\xa4", NULL}};
static const double n_characters[][3] = {{4, 12, 1}, {3, 18}, {5, 13, 2}};
static const char quiz[] =
    "{\"question\": \"What is warm?\", \"choices\": [\"fire\", \"ice and snow\", \"a\"], \"answer\": 0}\n"
    "\n"
    "{\"prompt\": \"The cat sat on the\", \"choices\": [\"mat\", \"moon over the hill\"], "
    "\"answer\": 1, \"source\": {\"any\": [1]}}\r\n"
    "{\"prompt\": \"One, two, \", \"delimiter\": \" \", \"choices\": [\"three\", \"seven hundred\", "
    "\"t\xc3\xa4\"], \"answer\": 2}";

static int64_t best_by_hand(const double *values, int n)
{
    int64_t best = 0;
    for (int i = 1; i < n; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

static void test_choices(void **state)
{
    (void)state;
    static const int lines[] = {1, 3, 4}, answers[] = {0, 1, 2};
    heard h = {0};
    dsmoe_tasks *tasks = parse(quiz);
    assert_int_equal(dsmoe_tasks_count(tasks), 3);
    dsmoe_task_scores scores = ask(tasks, &h, DSMOE_OK);
    int n_right = 0, n_right_norm = 0, n_right_token = 0;
    for (int q = 0; q < 3; q++) {
        double sums[4], by_character[4], by_token[4];
        int n = 0;
        for (; choices[q][n]; n++) {
            int n_scored;
            sums[n] = choice_by_hand(questions[q], choices[q][n], &n_scored);
            by_character[n] = sums[n] / n_characters[q][n];
            by_token[n] = sums[n] / n_scored;
            if (fabs(sums[n] - h.log_probabilities[q][n]) > 1e-4 * fabs(sums[n]))
                fail_msg("question %d, choice %d: %.9g is not %.9g", q, n,
                         h.log_probabilities[q][n], sums[n]);
        }
        const dsmoe_task_result *r = &h.results[q];
        assert_int_equal(r->line, lines[q]);
        assert_int_equal(r->n_choices, n);
        assert_int_equal(r->answer, answers[q]);
        assert_int_equal(r->chosen, best_by_hand(sums, n));
        assert_int_equal(r->chosen_by_character, best_by_hand(by_character, n));
        assert_int_equal(r->chosen_by_token, best_by_hand(by_token, n));
        assert_int_equal(r->right, r->chosen == r->answer);
        n_right += r->right;
        n_right_norm += r->chosen_by_character == r->answer;
        n_right_token += r->chosen_by_token == r->answer;
    }
    assert_int_equal(h.n, 3);
    assert_int_equal(scores.acc.n, 3);
    assert_int_equal(scores.exact_match.n, 0);
    assert_true(fabs(scores.acc.mean - n_right / 3.0) < 1e-12);
    assert_true(fabs(scores.acc_norm.mean - n_right_norm / 3.0) < 1e-12);
    assert_true(fabs(scores.acc_token.mean - n_right_token / 3.0) < 1e-12);
    dsmoe_tasks_free(tasks);
}

/* The standard error of a mean of zeros and ones; here three of four answers are right. */
static void test_standard_error(void **state)
{
    (void)state;
    static const char line[] =
        "{\"prompt\": \"x\", \"choices\": [\"yes\", \"no\"], \"answer\": %d}\n";
    char lines[512] = "";
    heard first = {0}, h = {0};
    snprintf(lines, sizeof lines, line, 0);
    dsmoe_tasks *tasks = parse(lines);
    ask(tasks, &first, DSMOE_OK);
    dsmoe_tasks_free(tasks);
    int chosen = (int)first.results[0].chosen;
    for (int i = 0, used = 0; i < 4; i++)
        used +=
            snprintf(lines + used, sizeof lines - (size_t)used, line, i == 2 ? !chosen : chosen);
    tasks = parse(lines);
    dsmoe_task_scores scores = ask(tasks, &h, DSMOE_OK);
    assert_true(fabs(scores.acc.mean - 0.75) < 1e-12);
    /* deviations 0.25 three times and 0.75: variance (3/16 + 9/16)/3, over 4 */
    assert_true(fabs(scores.acc.error - sqrt((3 * 0.0625 + 0.5625) / 3 / 4)) < 1e-12);
    dsmoe_tasks_free(tasks);
}

/* Questions with the same long prefix: the prefix is computed once, and the results do not change. */
static void test_shared_beginning(void **state)
{
    (void)state;
    enum { N = 12 };
    char *lines = malloc(N * 800), beginning[400] = "", question[420];
    for (int i = 0; i < 30; i++) strcat(beginning, "a b c d e f ");
    size_t used = 0;
    for (int i = 0; i < N; i++)
        used += (size_t)snprintf(
            lines + used, 800,
            "{\"prompt\": \"%s%c\", \"choices\": [\"yes\", \"no\", \"perhaps\"], \"answer\": 0}\n",
            beginning, 'A' + i);
    heard h = {0};
    dsmoe_tasks *tasks = parse(lines);
    dsmoe_task_scores scores = ask(tasks, &h, DSMOE_OK);
    int64_t n_beginning = tasks->at[0].n_ids;
    assert_true(n_beginning >= 128);
    assert_true(scores.n_reused >= (N - 1) * 128);
    assert_true(scores.n_run < N * n_beginning / 2);
    for (int i = 0; i < N; i++) {
        int n_scored;
        snprintf(question, sizeof question, "%s%c", beginning, 'A' + i);
        double expected = choice_by_hand(question, " perhaps", &n_scored);
        assert_true(fabs(h.log_probabilities[i][2] - expected) < 1e-4 * fabs(expected));
    }
    dsmoe_tasks_free(tasks);
    free(lines);
}

/* ---- written answers --------------------------------------------------------------------------- */

static void test_written(void **state)
{
    (void)state;
    static const char *const asked[] = {"One plus one is", "A", "The sea", "Two times three"};
    char lines[2048], texts[4][128], escaped[300];
    size_t used = 0;
    for (int i = 0; i < 4; i++) {
        write_by_hand(asked[i], 5 + i, texts[i], sizeof *texts);
        size_t n = 0;
        for (const char *c = texts[i]; *c; c++) /* any byte as JSON; such an answer may be wrong */
            n += (size_t)snprintf(escaped + n, sizeof escaped - n, "\\u%04x", (unsigned char)*c);
        used += (size_t)snprintf(lines + used, sizeof lines - used,
                                 "{\"prompt\": \"%s\", \"answer\": [\"no\", \"%s%s\"], "
                                 "\"max_tokens\": %d}\n",
                                 asked[i], n ? escaped : "x", i == 3 ? "!" : "", 5 + i);
    }
    heard h = {0};
    dsmoe_tasks *tasks = parse(lines);
    dsmoe_task_scores scores = ask(tasks, &h, DSMOE_OK);
    assert_int_equal(scores.exact_match.n, 4);
    assert_int_equal(scores.acc.n, 0);
    for (int i = 0; i < 4; i++) { /* results come in the order in which answers end */
        int64_t q = h.results[i].line - 1;
        assert_string_equal(h.texts[i], texts[q]);
        assert_int_equal(h.results[i].right, task_accepts(&tasks->at[q], texts[q]));
    }
    dsmoe_tasks_free(tasks);
}

static void test_stop_texts(void **state)
{
    (void)state;
    char text[128], line[512];
    write_by_hand("The sea", 12, text, sizeof text);
    char stop = 0; /* the last ASCII letter that occurs only once */
    for (const char *c = text; *c; c++)
        if (*c > ' ' && *c < 127 && *c != '"' && *c != '\\' && strchr(text, *c) == c) stop = *c;
    if (!stop) fail_msg("no letter to stop at in '%s'", text);
    snprintf(line, sizeof line,
             "{\"prompt\": \"The sea\", \"answer\": \"x\", \"stop\": [\"never\", \"%c\"], "
             "\"max_tokens\": 12}",
             stop);
    heard h = {0};
    dsmoe_tasks *tasks = parse(line);
    ask(tasks, &h, DSMOE_OK);
    *strchr(text, stop) = '\0';
    assert_string_equal(h.texts[0], text);
    dsmoe_tasks_free(tasks);
}

/* Both kinds of questions in one file, more of them than slots; and stopping early. */
static void test_mixed_and_stopped(void **state)
{
    (void)state;
    char *lines = malloc(40 * 200);
    size_t used = 0;
    for (int i = 0; i < 40; i++)
        used += (size_t)snprintf(
            lines + used, 200,
            i % 3
                ? "{\"prompt\": \"Number %d\", \"choices\": [\"a\", \"bc\", \"d\"], \"answer\": 1}\n"
                : "{\"prompt\": \"Number %d\", \"answer\": \"7\", \"max_tokens\": 3}\n",
            i);
    heard h = {0};
    dsmoe_tasks *tasks = parse(lines);
    dsmoe_task_scores scores = ask(tasks, &h, DSMOE_OK);
    assert_int_equal(scores.exact_match.n, 14);
    assert_int_equal(scores.acc.n, 26);
    heard early = {.stop_at = 3};
    scores = ask(tasks, &early, DSMOE_ERROR_STOPPED);
    assert_true(scores.acc.n + scores.exact_match.n >= 3);
    assert_true(scores.acc.n + scores.exact_match.n < 40);
    assert_int_equal(early.n, scores.acc.n + scores.exact_match.n);
    dsmoe_tasks_free(tasks);
    free(lines);
}

/* ---- accepting answers ------------------------------------------------------------------------- */

static void test_accepts(void **state)
{
    (void)state;
    static const struct {
        const char *accepted, *text, *after;
        task_match match;
        bool right;
    } cases[] = {
        {"Paris", "  Paris\n", NULL, TASK_EXACT, true},
        {"Paris", "paris", NULL, TASK_EXACT, false},
        {"Paris", "pARIS", NULL, TASK_IGNORE_CASE, true},
        {"Paris", "Paris.", NULL, TASK_IGNORE_CASE, false},
        {"42", "so 40 + 2\n#### 42\nmore 7", "####", TASK_EXACT, true},
        {"42", "so 42", "####", TASK_EXACT, false},
        {"42", "so 42", "####", TASK_NUMBER, false},
        {"1,234", "it costs $1234.00.", NULL, TASK_NUMBER, true},
        {"1234", "it costs $1,234 dollars", NULL, TASK_NUMBER, true},
        {"-5", "-$5", NULL, TASK_NUMBER, true},
        {"-5", "5", NULL, TASK_NUMBER, false},
        {"0", "-0", NULL, TASK_NUMBER, true},
        {"007", "7", NULL, TASK_NUMBER, true},
        {"10", "1", NULL, TASK_NUMBER, false},
        {"10", "10 or 12", NULL, TASK_NUMBER, false},
        {"12", "10, or 12!", NULL, TASK_NUMBER, true},
        {"0.5", ".5", NULL, TASK_NUMBER, false},
        {"3", "three", NULL, TASK_NUMBER, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        task t = {.accepted = {(char *)cases[i].accepted},
                  .n_accepted = 1,
                  .after = (char *)cases[i].after,
                  .match = cases[i].match};
        if (task_accepts(&t, cases[i].text) != cases[i].right)
            fail_msg("'%s' for '%s'", cases[i].text, cases[i].accepted);
    }
}

/* ---- wrong lines ------------------------------------------------------------------------------- */

static void test_hostile_lines(void **state)
{
    (void)state;
    static const char good[] = "{\"prompt\": \"x\", \"choices\": [\"y\", \"z\"], \"answer\": 0}\n";
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"{", "line 2: "},
        {"[]", "a line must be an object, not an array"},
        {"{\"prompt\": \"x\", \"prompt\": \"y\", \"answer\": \"z\"}", "line 2: "},
        {"{\"prompt\": \"x\"}", "it has no \"answer\""},
        {"{\"answer\": \"x\"}", "neither \"prompt\" nor \"question\""},
        {"{\"prompt\": \"x\", \"question\": \"y\", \"answer\": \"z\"}", "both \"prompt\" and"},
        {"{\"prompt\": 1, \"answer\": \"z\"}", "\"prompt\" must be a string, not an integer"},
        {"{\"prompt\": \"x\", \"answer\": 1}", "\"answer\" must be a string or an array"},
        {"{\"prompt\": \"x\", \"answer\": []}", "\"answer\" has 0 texts"},
        {"{\"prompt\": \"x\", \"answer\": \"\"}", "\"answer\" has an empty text"},
        {"{\"prompt\": \"x\", \"answer\": [\"a\", 2]}", "\"answer\" must be a string, not an"},
        {"{\"prompt\": \"x\", \"answer\": \"y\", \"max_tokens\": 0}", "\"max_tokens\" is 0"},
        {"{\"prompt\": \"x\", \"answer\": \"y\", \"max_tokens\": 900}",
         "take up to 902 tokens, the"},
        {"{\"prompt\": \"x\", \"answer\": \"y\", \"match\": \"best\"}", "not \"best\""},
        {"{\"prompt\": \"x\", \"answer\": \"y\", \"delimiter\": \"\"}",
         "\"delimiter\" has no effect"},
        {"{\"prompt\": \"x\", \"answer\": \"y\", \"stop\": 5}", "\"stop\" must be a string or"},
        {"{\"prompt\": \"x\", \"choices\": 5, \"answer\": 0}", "\"choices\" must be an array"},
        {"{\"prompt\": \"x\", \"choices\": [\"a\"], \"answer\": 0}", "1 choices; 2 to 64"},
        {"{\"prompt\": \"x\", \"choices\": [\"a\", 1], \"answer\": 0}",
         "array of strings, not an int"},
        {"{\"prompt\": \"x\", \"choices\": [\"a\", \"\"], \"answer\": 0}", "choice 1 is empty"},
        {"{\"prompt\": \"x\", \"choices\": [\"a\", \"b\"], \"answer\": 2}",
         "\"answer\" is 2; it can"},
        {"{\"prompt\": \"x\", \"choices\": [\"a\", \"b\"], \"answer\": -1}", "\"answer\" is -1"},
        {"{\"prompt\": \"x\", \"choices\": [\"a\", \"b\"], \"answer\": \"a\"}",
         "must be an integer"},
        {"{\"prompt\": \"x\", \"choices\": [\"a\", \"b\"], \"answer\": 0, \"stop\": \"c\"}",
         "\"stop\" has no effect"},
        {"{\"prompt\": \"x\\u0000\", \"answer\": \"y\"}", "line 2: "},
        {"{\"prompt\": \"\xff\", \"answer\": \"y\"}", "line 2: "},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char lines[512];
        dsmoe_tasks *tasks;
        dsmoe_error error = {0};
        int n = snprintf(lines, sizeof lines, "%s%s\n%s", good, cases[i].line, good);
        dsmoe_status status =
            tasks_parse(lines, (size_t)n, "quiz.jsonl", tokenizer, CONTEXT, &tasks, &error);
        if (status != DSMOE_ERROR_FORMAT || tasks || !strstr(error.message, cases[i].says) ||
            strncmp(error.message, "quiz.jsonl: line 2: ", 20))
            fail_msg("%s: %d '%s'", cases[i].line, status, error.message);
    }
    dsmoe_tasks *tasks;
    dsmoe_error error = {0};
    assert_int_equal(tasks_parse(" \n", 2, "quiz.jsonl", tokenizer, CONTEXT, &tasks, &error),
                     DSMOE_ERROR_FORMAT);
    assert_string_equal(error.message, "quiz.jsonl: there is no question in it");
    assert_int_equal(dsmoe_tasks_read("/nowhere/at.all", tokenizer, CONTEXT, &tasks, &error),
                     DSMOE_ERROR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),          cmocka_unit_test(test_standard_error),
        cmocka_unit_test(test_shared_beginning), cmocka_unit_test(test_written),
        cmocka_unit_test(test_stop_texts),       cmocka_unit_test(test_mixed_and_stopped),
        cmocka_unit_test(test_accepts),          cmocka_unit_test(test_hostile_lines),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
