/* test_serve_command.c - starting and stopping `dsmoe serve`: what it prints, what it tells systemd, its
 * log, and its signals. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "scratch.h"
#include "serve_fixture.h"

/* ---- a running command ------------------------------------------------------------------------- */

#define ANY_PORT "--port", "0"

typedef struct command {
    pid_t id;
    char url[256], errors[320], told[64]; /* errors: the file of stderr; told: systemd's socket */
    int listener;                         /* receives what systemd is told */
} command;

static int listen_for_news(command *c)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(c->told, sizeof c->told, "/tmp/dsmoe-notify-%d", (int)getpid());
    snprintf(address.sun_path, sizeof address.sun_path, "%s", c->told);
    unlink(c->told);
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    return descriptor;
}

static void become_command(const command *c, int output, const char *const *more)
{
    const char *arguments[32] = {"dsmoe", "serve", "-m", path, "-t", "1"};
    int n = 6;
    while (*more) arguments[n++] = *more++;
    int errors = open(c->errors, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    setenv("NOTIFY_SOCKET", c->told, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test fails, no server is left behind */
    if (dup2(output, STDOUT_FILENO) >= 0 && errors >= 0 && dup2(errors, STDERR_FILENO) >= 0)
        execv(DSMOE_COMMAND, (char *const *)arguments);
    _exit(98);
}

/* Returns when the address has been printed. */
static void start_command(command *c, const char *const *more)
{
    int output[2];
    *c = (command){0};
    snprintf(c->errors, sizeof c->errors, "%s/errors", directory);
    c->listener = listen_for_news(c);
    assert_int_equal(pipe(output), 0);
    c->id = fork();
    assert_true(c->id >= 0);
    if (c->id == 0) become_command(c, output[1], more);
    close(output[1]);
    size_t length = 0;
    while (length < sizeof c->url - 1 && read(output[0], c->url + length, 1) == 1)
        if (c->url[length++] == '\n') break;
    close(output[0]);
    assert_true(length > 0 && c->url[length - 1] == '\n');
    c->url[length - 1] = '\0';
}

static void expect_news(const command *c, const char *news)
{
    char heard[64] = "";
    struct pollfd look = {.fd = c->listener, .events = POLLIN};
    assert_int_equal(poll(&look, 1, 20000), 1);
    assert_true(recv(c->listener, heard, sizeof heard - 1, 0) > 0);
    assert_string_equal(heard, news);
}

static bool is_running(const command *c) { return waitpid(c->id, NULL, WNOHANG) == 0; }

/* Returns the exit code. */
static int wait_for_end(command *c)
{
    int status = -1;
    double end = clock_seconds() + 20;
    while (waitpid(c->id, &status, WNOHANG) == 0) {
        if (clock_seconds() > end) {
            kill(c->id, SIGKILL);
            waitpid(c->id, &status, 0);
            fail_msg("the server did not end");
        }
        sleep_seconds(0.01);
    }
    close(c->listener);
    unlink(c->told);
    unlink(c->errors);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *read_text(const char *file)
{
    static char text[16384];
    FILE *in = fopen(file, "r");
    assert_non_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return text;
}

static int status_of(const command *c, const char *method, const char *where, const char *body)
{
    http_client client;
    int status = client_fetch(&client, c->url, method, where, "", body);
    client_close(&client);
    return status;
}

static void begin_long_answer(const command *c, http_client *client, int n_tokens)
{
    char body[160];
    snprintf(body, sizeof body,
             "{\"prompt\": \"a\", \"max_tokens\": %d, \"ignore_eos\": true, \"stream\": true, "
             "\"logit_bias\": {\"0\": -100}}",
             n_tokens);
    assert_true(client_open(client, c->url));
    assert_true(client_ask(client, "POST", "/v1/completions", "", body));
    assert_true(client_read_head(client));
    assert_non_null(client_event(client));
}

/* The last event of a stream, cut to the buffer's size. */
static const char *last_event(http_client *client)
{
    static char last[256];
    const char *event;
    while ((event = client_event(client))) snprintf(last, sizeof last, "%s", event);
    return last;
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void begins_and_ends(void **state)
{
    (void)state;
    command c;
    char log[320];
    snprintf(log, sizeof log, "%s/log", directory);
    start_command(&c, (const char *const[]){ANY_PORT, "--log", log, NULL});
    expect_news(&c, "READY=1\n");
    assert_int_equal(strncmp(c.url, "http://127.0.0.1:", 17), 0);
    assert_null(strstr(read_text(c.errors), "warning: anyone"));
    assert_int_equal(status_of(&c, "POST", "/v1/completions", "{\"prompt\": 5}"), 400);
    kill(c.id, SIGTERM);
    expect_news(&c, "STOPPING=1\n");
    assert_int_equal(wait_for_end(&c), 0);
    json_node *line = parse_json(read_text(log));
    assert_string_equal(string_at(line, "method"), "POST");
    assert_string_equal(string_at(line, "path"), "/v1/completions");
    assert_string_equal(string_at(line, "peer"), "127.0.0.1");
    assert_int_equal(integer_at(line, "status"), 400);
    assert_int_equal(strlen(string_at(line, "id")), 32);
    json_node_free(line);
    unlink(log);
}

static void warns_who_is_open_to_all(void **state)
{
    (void)state;
    command c;
    const struct {
        const char *more[7];
        bool warns;
    } cases[] = {{{ANY_PORT, "--host", "0.0.0.0"}, true},
                 {{ANY_PORT, "--host", "0.0.0.0", "--api-key", "k"}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start_command(&c, cases[i].more);
        assert_int_equal(strstr(read_text(c.errors), "warning: anyone") != NULL, cases[i].warns);
        kill(c.id, SIGINT);
        assert_int_equal(wait_for_end(&c), 0);
    }
}

/* With a Unix socket the message does not suggest a browser. */
static void listens_on_a_file(void **state)
{
    (void)state;
    command c;
    char file[320], printed[340];
    snprintf(file, sizeof file, "%s/socket", directory);
    snprintf(printed, sizeof printed, "unix:%s", file);
    start_command(&c, (const char *const[]){"--unix", file, NULL});
    expect_news(&c, "READY=1\n");
    assert_string_equal(c.url, printed);
    assert_null(strstr(read_text(c.errors), "browser"));
    assert_non_null(strstr(read_text(c.errors), "dsmoe chat --unix"));
    assert_int_equal(status_of(&c, "GET", "/health", NULL), 200);
    kill(c.id, SIGTERM);
    assert_int_equal(wait_for_end(&c), 0);
    assert_int_equal(access(file, F_OK), -1);
}

/* If it was started with nohup, closing the terminal does not stop it. */
static void outlives_its_terminal(void **state)
{
    (void)state;
    command c;
    signal(SIGHUP, SIG_IGN);
    start_command(&c, (const char *const[]){ANY_PORT, NULL});
    signal(SIGHUP, SIG_DFL);
    kill(c.id, SIGHUP);
    sleep_seconds(0.3); /* signals are checked ten times a second */
    assert_true(is_running(&c));
    assert_int_equal(status_of(&c, "GET", "/health", NULL), 200);
    kill(c.id, SIGTERM);
    assert_int_equal(wait_for_end(&c), 0);
    start_command(&c, (const char *const[]){ANY_PORT, NULL});
    kill(c.id, SIGHUP);
    assert_int_equal(wait_for_end(&c), 0);
}

static void a_signal_lets_answers_end(void **state)
{
    (void)state;
    command c;
    http_client client;
    start_command(&c, (const char *const[]){ANY_PORT, "-c", "5000", NULL});
    begin_long_answer(&c, &client, 3000);
    kill(c.id, SIGTERM);
    while (status_of(&c, "GET", "/health", NULL) == 200) sleep_seconds(0.01);
    assert_int_equal(status_of(&c, "POST", "/v1/completions", "{\"prompt\": \"a\"}"), 503);
    assert_string_equal(last_event(&client), "[DONE]");
    client_close(&client);
    assert_int_equal(wait_for_end(&c), 0);
}

static void a_second_signal_ends_at_once(void **state)
{
    (void)state;
    command c;
    http_client client;
    start_command(&c, (const char *const[]){ANY_PORT, "-c", "100000", NULL});
    begin_long_answer(&c, &client, 90000);
    kill(c.id, SIGTERM);
    while (status_of(&c, "GET", "/health", NULL) == 200) sleep_seconds(0.01);
    assert_true(is_running(&c));
    kill(c.id, SIGTERM);
    assert_non_null(strstr(last_event(&client), "the server is being stopped"));
    client_close(&client);
    assert_int_equal(wait_for_end(&c), 0);
}

static void limits_how_long_answers_may_go_on(void **state)
{
    (void)state;
    command c;
    http_client client;
    start_command(&c, (const char *const[]){ANY_PORT, "-c", "100000", "--drain", "1", NULL});
    begin_long_answer(&c, &client, 90000);
    kill(c.id, SIGTERM);
    assert_non_null(strstr(last_event(&client), "the server is being stopped"));
    client_close(&client);
    assert_int_equal(wait_for_end(&c), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_and_ends),
        cmocka_unit_test(warns_who_is_open_to_all),
        cmocka_unit_test(listens_on_a_file),
        cmocka_unit_test(outlives_its_terminal),
        cmocka_unit_test(a_signal_lets_answers_end),
        cmocka_unit_test(a_second_signal_ends_at_once),
        cmocka_unit_test(limits_how_long_answers_may_go_on),
    };
    return cmocka_run_group_tests(tests, make_served_model, remove_served_model);
}
