// A form that the bot opened: a dialog over its platform.

import { make, makeButton } from "./nodes.js";

const DISMISSED = "dismissed forms";
const dismissed = new Set(JSON.parse(sessionStorage.getItem(DISMISSED) ?? "[]"));

// Shows the person's open form, or none; a form that is shown already keeps what was typed.
export function showForm(platform) {
  const form = platform.view.forms.find((one) => one.person === platform.person && !dismissed.has(one.form_id));
  const box = platform.find(".forms");
  if ((box.dataset.form ?? "") === (form?.form_id ?? "")) return;
  box.dataset.form = form?.form_id ?? "";
  box.replaceChildren(...(form ? [formNode(platform, form)] : []));
  if (form) box.querySelector("input, textarea, select")?.focus();
  else platform.compose.focus();
}

function formNode(platform, form) {
  const root = make("form");
  root.setAttribute("role", "dialog");
  root.setAttribute("aria-modal", "true");
  root.setAttribute("aria-label", form.title);
  root.append(make("h3", "", form.title), ...form.fields.map(fieldNode));
  const problem = make("p", "problem");
  problem.role = "alert";
  const submit = make("button", "control primary", form.submit_label);
  const row = make("div", "controls");
  row.append(submit, makeButton("control", "Cancel", () => dismiss(platform, form)));
  root.append(problem, row);
  root.addEventListener("keydown", (event) => event.key === "Escape" && dismiss(platform, form));
  root.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    const values = Object.fromEntries(new FormData(root));
    const done = await platform.act({ kind: "submit", form_id: form.form_id, values });
    submit.disabled = false;
    if (done === null) problem.textContent = "It was not taken; you can try again.";
  });
  return root;
}

function fieldNode(field) {
  const label = make("label", "", field.label);
  const input = make(field.options.length ? "select" : field.is_long ? "textarea" : "input");
  for (const option of field.options) input.append(new Option(option.label, option.value));
  input.name = field.field_id;
  input.required = field.is_required;
  label.append(input);
  return label;
}

function dismiss(platform, form) {
  dismissed.add(form.form_id);
  sessionStorage.setItem(DISMISSED, JSON.stringify([...dismissed]));
  showForm(platform);
}
