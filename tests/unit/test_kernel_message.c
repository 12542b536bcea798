/* test_kernel_message.c - messages of kernels: signatures, the frames of both dialects, and the
 * lines of the code interpreter. */
#include "guest/kernels/message.h"

#include "base/mem.h"
#include "guest/kernels/interpreter_event.h"
#include "guest/kernels/kernelspec.h"
#include "guest/kernels/scan.h"
#include "test.h"

#define HEADER "{\"msg_id\":\"m\",\"msg_type\":\"%s\",\"date\":\"D\"}"

static struct message *make(enum channel channel, const char *type, const char *content,
                            size_t nbuffers)
{
    struct zmtp_parts p = { 0 };
    struct signer none;
    struct err err = { 0 };
    struct message *m;

    signer_init(&none, (struct str){ 0 });
    zmtp_parts_begin(&p);
    buf_puts(&p.bytes, "<IDS|MSG>");
    zmtp_parts_end(&p);
    zmtp_parts_end(&p); /* no signature */
    buf_printf(&p.bytes, HEADER, type);
    zmtp_parts_end(&p);
    buf_puts(&p.bytes, "{\"msg_id\":\"p\"}");
    zmtp_parts_end(&p);
    buf_puts(&p.bytes, "{}");
    zmtp_parts_end(&p);
    buf_puts(&p.bytes, content);
    zmtp_parts_end(&p);
    for (size_t i = 0; i < nbuffers; i++) {
        buf_printf(&p.bytes, "buffer %zu", i);
        zmtp_parts_end(&p);
    }
    m = message_take(&p, channel, &none, &err);
    CHECK(m);
    return m;
}

TEST(a_signature_is_that_of_the_four_parts_together)
{
    struct str json[] = { STR("{}"), STR("{}"), STR("{}"), STR("{}") };
    char got[SIGNATURE_LEN + 1];
    struct signer s;

    signer_init(&s, STR("key"));
    signer_sign(&s, json, got);
    /* printf '{}{}{}{}' | openssl dgst -sha256 -hmac key */
    CHECK_STR(got, "ca767b02c5bc061ed184a9a029e7f93a7f2f7ed4e8fe74120fc1212f0b008fa3");
    signer_init(&s, (struct str){ 0 });
    signer_sign(&s, json, got);
    CHECK_STR(got, "");
}

TEST(a_wrong_signature_is_refused)
{
    struct zmtp_parts p = { 0 };
    struct signer s;
    struct err err = { 0 };

    signer_init(&s, STR("key"));
    zmtp_parts_begin(&p);
    for (int i = 0; i < 7; i++) {
        buf_puts(&p.bytes, i == 0 ? "topic" : i == 1 ? "<IDS|MSG>" : i == 2 ? "00" : "{}");
        zmtp_parts_end(&p);
    }
    CHECK(!message_take(&p, CHANNEL_IOPUB, &s, &err));
    CHECK_STR(err.msg, "a message with a wrong signature");
    zmtp_parts_free(&p);
}

TEST(too_few_parts_are_no_message)
{
    struct zmtp_parts p = { 0 };
    struct signer s;
    struct err err = { 0 };

    signer_init(&s, STR("key"));
    zmtp_parts_begin(&p);
    buf_puts(&p.bytes, "<IDS|MSG>");
    zmtp_parts_end(&p);
    CHECK(!message_take(&p, CHANNEL_SHELL, &s, &err));
    CHECK(strstr(err.msg, "1 parts"));
    zmtp_parts_free(&p);
}

static void check_v1(size_t nbuffers)
{
    struct message *m = make(CHANNEL_SHELL, "comm_msg", "{\"a\":1}", nbuffers);
    struct request *r = xcalloc(1, sizeof(*r));
    struct str frame = message_v1(m);
    struct err err = { 0 };
    char last[32];

    CHECK_INT(request_from_v1(r, frame, &err), 0);
    CHECK_INT(r->channel, CHANNEL_SHELL);
    CHECK(str_is(r->json[PART_CONTENT], "{\"a\":1}"));
    CHECK(str_is(r->json[PART_PARENT], "{\"msg_id\":\"p\"}"));
    CHECK_INT(r->nbuffers, nbuffers);
    snprintf(last, sizeof(last), "buffer %zu", nbuffers - 1);
    CHECK(!nbuffers || str_is(r->buffers[nbuffers - 1], last));
    CHECK(message_v1(m).p == frame.p); /* made once */
    free(r);
    message_put(m);
}

TEST(a_v1_frame_has_the_parts_as_they_came)
{
    check_v1(0);
    check_v1(1);
    check_v1(100); /* no room for the head in front of the parts */
}

TEST(a_default_frame_is_one_object_with_id_and_type_on_top)
{
    struct message *m = make(CHANNEL_IOPUB, "stream", "{\"text\":\"x\"}", 0);
    bool binary;
    struct str frame = message_default(m, &binary);

    CHECK(!binary);
    CHECK(scan_valid(frame));
    CHECK(str_is(scan_get(frame, "msg_id"), "\"m\""));
    CHECK(str_is(scan_get(frame, "msg_type"), "\"stream\""));
    CHECK(str_is(scan_get(frame, "channel"), "\"iopub\""));
    CHECK(str_is(scan_get(frame, "buffers"), "[]"));
    CHECK(str_is(scan_get(frame, "content"), "{\"text\":\"x\"}"));
    message_put(m);
}

TEST(a_default_frame_with_buffers_is_binary)
{
    struct message *m = make(CHANNEL_IOPUB, "comm_msg", "{}", 2);
    struct request *r = xcalloc(1, sizeof(*r));
    struct err err = { 0 };
    bool binary;
    struct str frame = message_default(m, &binary);

    CHECK(binary);
    CHECK_INT(frame.p[3], 3); /* the object and two buffers */
    CHECK_INT(request_from_binary(r, frame, &err), -1);
    CHECK(strstr(err.msg, "iopub")); /* nobody sends there: else it would be a request */
    free(r);
    message_put(m);
}

TEST(what_is_not_json_has_no_default_frame)
{
    struct message *m = make(CHANNEL_IOPUB, "stream", "{\"text\":", 0);
    bool binary;

    CHECK(!message_default(m, &binary).p);
    CHECK(message_v1(m).n > 0);
    message_put(m);
}

TEST(a_text_request_may_leave_out_what_has_a_default)
{
    struct request *r = xcalloc(1, sizeof(*r));
    struct err err = { 0 };

    CHECK_INT(
        request_from_text(r, STR("{\"header\":{\"a\":1},\"content\":{},\"metadata\":null}"), &err),
        0);
    CHECK_INT(r->channel, CHANNEL_SHELL);
    CHECK(str_is(r->json[PART_PARENT], "{}"));
    CHECK_INT(request_from_text(r, STR("{\"content\":{}}"), &err), -1);
    CHECK_STR(err.msg, "the message's header is not a JSON object");
    CHECK_INT(request_from_text(r, STR("{\"header\":{},\"channel\":\"iopub\"}"), &err), -1);
    CHECK_INT(request_from_text(r, STR("[1]"), &err), -1);
    free(r);
}

static void check_line(const char *type, const char *content, const char *wanted)
{
    struct message *m = make(CHANNEL_IOPUB, type, content, 0);
    struct buf out = { 0 };

    event_write(m, &out);
    CHECK_STR(buf_cstr(&out), wanted);
    buf_free(&out);
    message_put(m);
}

TEST(messages_become_lines_of_the_interpreter)
{
    check_line("stream", "{\"name\":\"stderr\",\"text\":\"a\\n\"}",
               "{\"type\":\"stderr\",\"text\":\"a\\n\",\"timestamp\":\"D\"}\n");
    check_line("execute_result",
               "{\"data\":{\"text/plain\":\"'x'\",\"image/png\":\"AA==\",\"x/y\":[1]}}",
               "{\"type\":\"result\",\"text\":\"x\",\"png\":\"AA==\",\"extra\":{\"x/y\":[1]},"
               "\"is_main_result\":true}\n");
    check_line("display_data", "{\"data\":{\"e2b/chart\":{\"type\":\"bar\"}}}",
               "{\"type\":\"result\",\"chart\":{\"type\":\"bar\"},\"is_main_result\":false}\n");
    check_line("error", "{\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"a\",\"b\"]}",
               "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"a\\nb\"}\n");
    check_line("execute_input", "{\"execution_count\":7}",
               "{\"type\":\"number_of_executions\",\"execution_count\":7}\n");
    check_line("comm_msg", "{}", "");
    check_line("stream", "{\"name\":", "");
}

TEST(idle_ends_an_execution)
{
    struct message *m = make(CHANNEL_IOPUB, "status", "{\"execution_state\":\"idle\"}", 0);
    struct buf out = { 0 };

    CHECK_INT(event_write(m, &out), EVENT_IDLE);
    CHECK_INT(out.len, 0);
    message_put(m);
}

TEST(a_plain_ipykernel_can_be_forked_and_others_cannot)
{
    struct err err = { 0 };
    struct kernelspec *k = kernelspec_parse(
        "a", NULL,
        STR("{\"argv\":[\"/usr/bin/python3\",\"-Xfrozen_modules=off\",\"-m\",\"ipykernel_launcher\",\"-f\","
            "\"{connection_file}\"],\"display_name\":\"P\",\"language\":\"python\"}"),
        &err);

    CHECK(k);
    CHECK_STR(k->python, "/usr/bin/python3");
    kernelspec_put(k);
    k = kernelspec_parse(
        "b", NULL,
        STR("{\"argv\":[\"/usr/bin/python3\",\"-m\",\"ipykernel_launcher\",\"--debug\","
            "\"-f\",\"{connection_file}\"]}"),
        &err);
    CHECK(k && !k->python);
    kernelspec_put(k);
    CHECK(!kernelspec_parse("c", NULL, STR("{\"argv\":[]}"), &err));
    CHECK(strstr(err.msg, "argv"));
    CHECK(!kernelspec_parse("d", NULL, STR("{\"argv\":\"x\"}"), &err));
}

static int64_t cull_idle_of(const char *metadata)
{
    AUTO(buf_free) struct buf text = { 0 };
    struct err err = { 0 };
    struct kernelspec *k;
    int64_t found;

    buf_printf(&text, "{\"argv\":[\"x\"],\"metadata\":%s}", metadata);
    k = kernelspec_parse("k", NULL, buf_str(&text), &err);
    if (!k)
        return -2;
    found = k->cull_idle_s;
    kernelspec_put(k);
    return found;
}

TEST(a_spec_may_say_when_its_kernels_are_culled)
{
    CHECK_INT(cull_idle_of("{}"), -1);
    CHECK_INT(cull_idle_of("{\"cull_idle_timeout\":90,\"debugger\":true}"), 90);
    CHECK_INT(cull_idle_of("{\"cull_idle_timeout\":0}"), 0);
    CHECK_INT(cull_idle_of("{\"cull_idle_timeout\":-5}"),
              -1); /* nonsense is as if it said nothing */
    CHECK_INT(cull_idle_of("{\"cull_idle_timeout\":\"soon\"}"), -1);
}
