/* docs.c - the API as one page for people, written from the route tables at each request. It needs
 * nothing from anywhere else, and the policy it is sent with lets nothing else in: the one style
 * and the one script carry a nonce. A request is sent from it with a key that is typed in and kept
 * by nobody. */
#include "api/docs.h"

#include "api/contract.h"
#include "base/id.h"

/* ---- text ---- */

static void put_text(struct buf *b, const char *text)
{
    for (; text && *text; text++)
        switch (*text) {
        case '<': buf_puts(b, "&lt;"); break;
        case '>': buf_puts(b, "&gt;"); break;
        case '&': buf_puts(b, "&amp;"); break;
        case '"': buf_puts(b, "&quot;"); break;
        case '`': break; /* our help texts mark names with them; here the font does */
        default: buf_putc(b, *text);
        }
}

static void put_slug(struct buf *b, const char *tag)
{
    for (; *tag; tag++)
        buf_putc(b, (*tag >= 'a' && *tag <= 'z') || (*tag >= 'A' && *tag <= 'Z') || *tag == '2'
                        ? *tag
                        : '-');
}

/* ---- fields ---- */

static const char *const type_names[] = {
    [F_STR] = "string", [F_INT] = "integer", [F_BOOL] = "boolean", [F_NUM] = "number",
    [F_MAP] = "object", [F_STRS] = "array",  [F_BYTES] = "base64", [F_ENUM] = "string",
    [F_OBJ] = "object", [F_OBJS] = "array",  [F_TEXT] = "string",  [F_JSON] = "any value",
};

static void put_notes(struct buf *b, const struct field *f)
{
    if (f->type == F_ENUM) {
        for (const struct field_name *n = f->names; n->name; n++)
            buf_printf(b, "%s<code>%s</code>", n == f->names ? "" : ", ", n->name);
        buf_puts(b, ". ");
    }
    if (f->help) {
        put_text(b, f->help);
        buf_puts(b, ". ");
    }
    if (f->type == F_INT && f->max && f->max != INT64_MAX)
        buf_printf(b, "From %lld to %lld. ", (long long)f->min, (long long)f->max);
    if (f->def > 0 && (f->type == F_INT || f->type == F_BOOL))
        buf_printf(b, "Default %s", f->type == F_BOOL ? "true." : "");
    if (f->def > 0 && f->type == F_INT)
        buf_printf(b, "%lld.", (long long)f->def);
}

/* Recursion follows the tables, which end. */
static void put_fields(struct buf *b, const char *prefix, const struct field *table, bool request)
{
    for (const struct field *f = table; f && f->name; f++) {
        buf_printf(b, "<tr><td><code>%s%s</code>", prefix, f->name);
        if (request ? f->flags & F_REQUIRED : !(f->flags & F_REQUIRED))
            buf_puts(b, request ? " <b title=required>*</b>" : " <i>may be absent</i>");
        buf_printf(b, "<td>%s<td>", type_names[f->type]);
        put_notes(b, f);
        buf_puts(b, "</tr>\n");
        if (f->sub) {
            AUTO(buf_free) struct buf deeper = { 0 };

            buf_printf(&deeper, "%s%s%s.", prefix, f->name, f->type == F_OBJS ? "[]" : "");
            put_fields(b, buf_cstr(&deeper), f->sub, request);
        }
    }
}

static void put_table(struct buf *b, const char *title, const struct field *table, bool request)
{
    if (!table || !table->name)
        return;
    buf_printf(b, "<h4>%s</h4><table>\n", title);
    put_fields(b, "", table, request);
    buf_puts(b, "</table>\n");
}

/* ---- one operation ---- */

static void put_input(struct buf *b, const char *kind, struct str name)
{
    buf_printf(b, "<label>%.*s <input data-%s=\"%.*s\" autocomplete=off></label> ", STR_ARG(name),
               kind, STR_ARG(name));
}

static void put_body(struct buf *b, const struct route *r)
{
    const char *comma = "";

    if (r->flags & ROUTE_FORM) {
        for (const struct field *f = r->fields; f->name; f++)
            buf_printf(b, "<label>%s <input data-form=\"%s\" autocomplete=off type=%s></label> ",
                       f->name, f->name, f->type == F_BYTES ? "file" : "text");
        return;
    }
    buf_puts(b, "<textarea rows=3 spellcheck=false aria-label=\"Body\">{");
    for (const struct field *f = r->fields; f->name; f++)
        if (f->flags & F_REQUIRED) {
            buf_printf(b, "%s\"%s\": %s", comma, f->name, f->type == F_INT ? "300" : "\"\"");
            comma = ", ";
        }
    buf_puts(b, "}</textarea>");
}

static void put_form(struct buf *b, const struct route *r)
{
    buf_puts(b, "<form>");
    for (const char *p = r->path; (p = strchr(p, '{')); p++)
        put_input(b, "path", (struct str){ p + 1, (size_t)(strchr(p, '}') - p) - 1 });
    for (const struct field *f = r->query; f && f->name; f++)
        put_input(b, "query", str_of(f->name));
    if (r->fields)
        put_body(b, r);
    buf_puts(b, "<button>Send</button><pre hidden></pre></form>\n");
}

static const char *note_of(const struct route *r)
{
    return r->flags & ROUTE_OPEN ? "no key" : r->flags & ROUTE_ADMIN ? "admin's key" : "";
}

static void put_operation(struct buf *b, const struct route *r)
{
    buf_printf(
        b,
        "<details id=\"%s\" data-method=\"%s\" data-target=\"%s\"><summary><b class=m>%s</b> "
        "<code>%s</code> <span>",
        r->operation, r->method, r->path, r->method, r->path);
    put_text(b, r->help);
    buf_printf(b, "</span> <small>%s</small></summary>\n", note_of(r));
    put_table(b, "Query", r->query, true);
    put_table(b, "Body", r->fields, true);
    if (r->status < 400) {
        AUTO(buf_free) struct buf title = { 0 };

        buf_printf(&title, "Answer %d%s", r->status ? r->status : 200,
                   r->flags & ROUTE_LIST ? ": an array of" : "");
        put_table(b, buf_cstr(&title), r->reply, false);
    }
    put_form(b, r);
    buf_puts(b, "</details>\n");
}

/* ---- the page ---- */

static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1a1d21;background:#fff}h1{margin-bottom:0}h2{margin:2rem 0 .5rem}h4{margin:.8rem 0 "
    ".2rem}code,pre,textarea{font:14px/1.4 ui-monospace,monospace}a{color:#0a58ca}"
    "details{border:1px solid #d5d9de;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}"
    "summary{cursor:pointer}summary span{color:#555e68}summary small{color:#7a3b00}"
    ".m{display:inline-block;min-width:4rem}table{border-collapse:collapse;width:100%}"
    "td{border-top:1px solid #e3e6ea;padding:.2rem .6rem .2rem 0;vertical-align:top}"
    "td:nth-child(2){white-space:nowrap;color:#555e68}i{color:#555e68;font-size:85%}"
    "input,textarea,button{font-size:15px;padding:.3rem .5rem}textarea{width:100%;"
    "box-sizing:border-box;margin:.5rem 0}form{margin:.8rem 0}label{margin-right:.6rem}"
    "pre{background:#f4f6f8;padding:.6rem;overflow:auto;max-height:30rem}"
    "@media(prefers-color-scheme:dark){body{color:#e4e7eb;background:#15181c}a{color:#7ab4ff}"
    "details{border-color:#3a4149}td{border-color:#2b3138}pre{background:#20252b}"
    "summary span,i,td:nth-child(2){color:#a3adb8}summary small{color:#f0b070}"
    "input,textarea,button{background:#20252b;color:inherit;border:1px solid #4a525b}}";

static const char script[] =
    "addEventListener('submit',async e=>{e.preventDefault();const f=e.target,"
    "d=f.closest('details');if(!d)return;const out=f.querySelector('pre'),q=new URLSearchParams();"
    "let t=d.dataset.target;for(const i of f.querySelectorAll('[data-path]'))"
    "t=t.replace('{'+i.dataset.path+'}',encodeURIComponent(i.value||'-'));"
    "for(const i of f.querySelectorAll('[data-query]'))if(i.value)q.set(i.dataset.query,i.value);"
    "const o={method:d.dataset.method,headers:{}},k=document.getElementById('key').value,"
    "b=f.querySelector('textarea'),m=f.querySelectorAll('[data-form]');"
    "if(k)o.headers['Authorization']='Bearer '+k;"
    "if(b){o.body=b.value;o.headers['Content-Type']='application/json'}"
    "if(m.length){o.body=new FormData();for(const i of m)"
    "o.body.append(i.dataset.form,i.files?i.files[0]||'':i.value)}out.hidden=false;"
    "out.textContent='...';try{const r=await fetch(t+(q.size?'?'+q:''),o);let x=await r.text();"
    "try{const j=JSON.parse(x),t=j.access_token||(j.data||{}).access_token;"
    "if(t)document.getElementById('key').value=t;x=JSON.stringify(j,null,2)}catch{}"
    "out.textContent=r.status+' '+r.statusText+'\\n'+x}catch(x){out.textContent=x}});";

static void put_head(struct buf *b, const char *version, const char *nonce)
{
    buf_printf(
        b,
        "<!doctype html><html lang=en><meta charset=utf-8><title>Cove API</title>"
        "<meta name=viewport content=\"width=device-width\"><style nonce=\"%s\">%s</style>"
        "<h1>Cove API</h1><p>Version %s. Requests carry an API key as <code>X-API-Key</code>, or "
        "a key or the token of a login as <code>Authorization: Bearer</code>. Errors are "
        "<code>{\"code\", \"message\"}</code> with the matching status; below /agent and "
        "/api/v1 every answer is <code>{\"code\", \"msg\", \"data\"}</code>. The same as "
        "documents: <a href=\"/v1/openapi.json\">/v1/openapi.json</a>, "
        "<a href=\"/openapi.json\">/openapi.json</a>.\n"
        "<p><label>Key or token for trying requests (a login fills it in): <input id=key type=password autocomplete=off "
        "size=50></label>\n",
        nonce, style, version);
}

/* Of several the last but one says most: it is the group in the contract's own document. */
static const char *tag_of(const struct route *r)
{
    return !r->tag ? "Others" : strcmp(r->tag, CONTRACT_TAGS) ? r->tag : "Agent Sandbox Management";
}

static bool tag_seen(const struct route *const *tables, const struct route *row)
{
    for (; *tables; tables++)
        for (const struct route *r = *tables; r->method; r++) {
            if (r == row)
                return false;
            if (!strcmp(tag_of(r), tag_of(row)))
                return true;
        }
    return false;
}

typedef void tag_fn(struct buf *b, const char *tag);

static void put_link(struct buf *b, const char *tag)
{
    buf_puts(b, "<a href=\"#");
    put_slug(b, tag);
    buf_printf(b, "\">%s</a> ", tag);
}

static void put_group(struct buf *b, const char *tag)
{
    buf_puts(b, "<h2 id=\"");
    put_slug(b, tag);
    buf_printf(b, "\">%s</h2>\n", tag);
    for (const struct route *const *t = api_tables; *t; t++)
        for (const struct route *r = *t; r->method; r++)
            if (!strcmp(tag_of(r), tag))
                put_operation(b, r);
}

/* Cove's own groups come first, for they are what a reader here has no SDK for. */
static void each_tag(struct buf *b, tag_fn *fn)
{
    for (int foreign = 0; foreign < 2; foreign++)
        for (const struct route *const *t = api_tables; *t; t++)
            for (const struct route *r = *t; r->method; r++)
                if (str_starts(str_of(tag_of(r)), "E2B") == foreign && !tag_seen(api_tables, r))
                    fn(b, tag_of(r));
}

int docs_get(struct call *c, void *body, struct err *err)
{
    AUTO(buf_free) struct buf page = { 0 };
    char nonce[25];

    (void)body, (void)err;
    id_random(nonce, sizeof(nonce) - 1);
    put_head(&page, api_of(c)->version, nonce);
    each_tag(&page, put_link);
    each_tag(&page, put_group);
    buf_printf(&page, "<script nonce=\"%s\">%s</script></html>\n", nonce, script);
    call_header(c, "Content-Security-Policy",
                arena_printf(&c->arena,
                             "default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'",
                             nonce, nonce));
    call_header(c, "X-Content-Type-Options", "nosniff");
    call_header(c, "Referrer-Policy", "no-referrer");
    return call_reply(c, 200, "text/html; charset=utf-8", buf_str(&page));
}
