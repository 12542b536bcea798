/* rest_document.c - what the REST service says about itself.
 *
 * Written out and not made from the route table: names, titles and the absence of tags decide what
 * openapi-python-client generates (modules, classes, even whether .parsed is None), so the text is
 * the contract. tests/e2e/test_services_client.py generates from it with two versions of that tool.
 */
#include "guest/services/rest.h"

/* clang-format off: one block for each path and schema */
const char rest_openapi[] =
    "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Sandbox REST Server\","
    "\"version\":\"0.1.0\"},\"paths\":{"
    /* /health */
    "\"/health\":{\"get\":{\"summary\":\"Health Check\","
    "\"operationId\":\"health_check_health_get\",\"responses\":{\"200\":{"
    "\"description\":\"Successful Response\",\"content\":{\"application/json\":{"
    "\"schema\":{\"$ref\":\"#/components/schemas/HealthResponse\"}}}}}}},"
    /* /packages */
    "\"/packages\":{\"get\":{\"summary\":\"Get Installed Packages\","
    "\"operationId\":\"get_installed_packages_packages_get\",\"responses\":{\"200\":{"
    "\"description\":\"Successful Response\",\"content\":{\"application/json\":{"
    "\"schema\":{\"type\":\"array\",\"items\":{"
    "\"$ref\":\"#/components/schemas/PackageInfo\"},"
    "\"title\":\"Response Get Installed Packages Packages Get\"}}}}}}},"
    /* /screenshot */
    "\"/screenshot\":{\"get\":{\"summary\":\"Screenshot Endpoint\","
    "\"operationId\":\"screenshot_endpoint_screenshot_get\",\"parameters\":[{"
    "\"name\":\"method\",\"in\":\"query\",\"required\":false,\"schema\":{"
    "\"type\":\"string\",\"enum\":[\"pyautogui\",\"pillow\"],\"default\":\"pyautogui\","
    "\"title\":\"Method\"}}],\"responses\":{\"200\":{"
    "\"description\":\"Successful Response\",\"content\":{\"application/json\":{"
    "\"schema\":{\"$ref\":\"#/components/schemas/ScreenshotResponse\"}}}},\"422\":{"
    "\"description\":\"Validation Error\",\"content\":{\"application/json\":{\"schema\":{"
    "\"$ref\":\"#/components/schemas/HTTPValidationError\"}}}},\"500\":{"
    "\"description\":\"No display, or it cannot be read\",\"content\":{"
    "\"application/json\":{\"schema\":{"
    "\"$ref\":\"#/components/schemas/ErrorResponse\"}}}}}}},"
    /* /execute */
    "\"/execute\":{\"post\":{\"summary\":\"Run Code\","
    "\"operationId\":\"run_code_execute_post\",\"requestBody\":{\"required\":true,"
    "\"content\":{\"application/json\":{\"schema\":{"
    "\"$ref\":\"#/components/schemas/CodeRequest\"}}}},\"responses\":{\"200\":{"
    "\"description\":\"Successful Response\",\"content\":{\"application/json\":{"
    "\"schema\":{\"$ref\":\"#/components/schemas/ExecuteResponse\"}}}},\"422\":{"
    "\"description\":\"Validation Error\",\"content\":{\"application/json\":{\"schema\":{"
    "\"$ref\":\"#/components/schemas/HTTPValidationError\"}}}}}}},"
    /* /record */
    "\"/record\":{\"get\":{\"summary\":\"Record\",\"operationId\":\"record_record_get\","
    "\"parameters\":[{\"name\":\"mode\",\"in\":\"query\",\"required\":true,\"schema\":{"
    "\"type\":\"string\",\"enum\":[\"start\",\"stop\"],\"title\":\"Mode\"}}],"
    "\"responses\":{\"200\":{\"description\":\"Successful Response\",\"content\":{"
    "\"application/json\":{\"schema\":{"
    "\"$ref\":\"#/components/schemas/RecordResponse\"}}}},\"422\":{"
    "\"description\":\"Validation Error\",\"content\":{\"application/json\":{\"schema\":{"
    "\"$ref\":\"#/components/schemas/HTTPValidationError\"}}}},\"500\":{"
    "\"description\":\"No display, or it cannot be read\",\"content\":{"
    "\"application/json\":{\"schema\":{"
    "\"$ref\":\"#/components/schemas/ErrorResponse\"}}}}}}}},"
    "\"components\":{\"schemas\":{"
    /* CodeRequest */
    "\"CodeRequest\":{\"type\":\"object\",\"title\":\"CodeRequest\",\"required\":["
    "\"code\"],\"properties\":{\"code\":{\"type\":\"string\",\"title\":\"Code\"},"
    "\"packages\":{\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":\"string\"}},{"
    "\"type\":\"null\"}],\"title\":\"Packages\"}}},"
    /* ErrorResponse */
    "\"ErrorResponse\":{\"type\":\"object\",\"title\":\"ErrorResponse\",\"required\":["
    "\"status\",\"message\"],\"properties\":{\"status\":{\"type\":\"string\","
    "\"title\":\"Status\"},\"message\":{\"type\":\"string\",\"title\":\"Message\"}}},"
    /* ExecuteResponse */
    "\"ExecuteResponse\":{\"type\":\"object\",\"title\":\"ExecuteResponse\",\"required\":["
    "\"stdout\",\"stderr\"],\"properties\":{\"stdout\":{\"type\":\"string\","
    "\"title\":\"Stdout\"},\"stderr\":{\"type\":\"string\",\"title\":\"Stderr\"}}},"
    /* HTTPValidationError */
    "\"HTTPValidationError\":{\"type\":\"object\",\"title\":\"HTTPValidationError\","
    "\"properties\":{\"detail\":{\"type\":\"array\",\"items\":{"
    "\"$ref\":\"#/components/schemas/ValidationError\"},\"title\":\"Detail\"}}},"
    /* HealthResponse */
    "\"HealthResponse\":{\"type\":\"object\",\"title\":\"HealthResponse\",\"required\":["
    "\"status\"],\"properties\":{\"status\":{\"type\":\"string\",\"title\":\"Status\"},"
    "\"kernel_status\":{\"type\":\"string\",\"title\":\"Kernel Status\"},\"error\":{"
    "\"type\":\"string\",\"title\":\"Error\"}}},"
    /* PackageInfo */
    "\"PackageInfo\":{\"type\":\"object\",\"title\":\"PackageInfo\",\"required\":[\"name\","
    "\"version\"],\"properties\":{\"name\":{\"type\":\"string\",\"title\":\"Name\"},"
    "\"version\":{\"type\":\"string\",\"title\":\"Version\"},"
    "\"editable_project_location\":{\"type\":\"string\","
    "\"title\":\"Editable Project Location\"}}},"
    /* RecordResponse */
    "\"RecordResponse\":{\"type\":\"object\",\"title\":\"RecordResponse\",\"required\":["
    "\"status\"],\"properties\":{\"status\":{\"type\":\"string\",\"title\":\"Status\"},"
    "\"recording_file\":{\"type\":\"string\",\"title\":\"Recording File\"},"
    "\"num_actions\":{\"type\":\"integer\",\"title\":\"Num Actions\"},\"message\":{"
    "\"type\":\"string\",\"title\":\"Message\"}}},"
    /* ScreenshotResponse */
    "\"ScreenshotResponse\":{\"type\":\"object\",\"title\":\"ScreenshotResponse\","
    "\"required\":[\"screenshot_path\",\"mouse_position\",\"screen_size\"],\"properties\":{"
    "\"screenshot_path\":{\"type\":\"string\",\"title\":\"Screenshot Path\"},"
    "\"mouse_position\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"
    "\"title\":\"Mouse Position\"},\"screen_size\":{\"type\":\"array\",\"items\":{"
    "\"type\":\"integer\"},\"title\":\"Screen Size\"}}},"
    /* ValidationError */
    "\"ValidationError\":{\"type\":\"object\",\"title\":\"ValidationError\",\"required\":["
    "\"loc\",\"msg\",\"type\"],\"properties\":{\"loc\":{\"type\":\"array\",\"items\":{"
    "\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]},\"title\":\"Location\"},"
    "\"msg\":{\"type\":\"string\",\"title\":\"Message\"},\"type\":{\"type\":\"string\","
    "\"title\":\"Error Type\"}}}}}}";

/* Nothing is fetched from elsewhere: a sandbox may have no network. */
const char rest_docs[] =
    "<!doctype html><meta charset=utf-8><title>Sandbox REST Server</title>\n"
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}\n"
    "code,pre{background:#8882;border-radius:4px;padding:.1em .35em}pre{padding:.7em;overflow:auto}</style>\n"
    "<h1>Sandbox REST Server</h1>\n"
    "<p>The document: <a href=/openapi.json>/openapi.json</a></p><div id=d></div>\n"
    "<script>\n"
    "const put=(p,t,x)=>{const e=document.createElement(t);e.textContent=x;p.append(e);return e};\n"
    "fetch('/openapi.json').then(r=>r.json()).then(o=>{\n"
    "for(const [path,ops] of Object.entries(o.paths))for(const [verb,op] of Object.entries(ops)){\n"
    "put(d,'h2',verb.toUpperCase()+' '+path);put(d,'p',op.summary+' ('+op.operationId+')');\n"
    "put(d,'pre',JSON.stringify({parameters:op.parameters,requestBody:op.requestBody,responses:op.responses},null,1))}\n"
    "put(d,'h2','Schemas');put(d,'pre',JSON.stringify(o.components.schemas,null,1))});\n"
    "</script>\n";
/* clang-format on */
