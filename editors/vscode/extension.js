// Starts `lamella lsp` and hands it the four text languages; everything else is the server's.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const LANGUAGES = ["lamella-module", "skriptnd", "lamella-tensor", "nem"];
let client;

function start() {
  const command = vscode.workspace.getConfiguration("lamella").get("command", "lamella");
  const selector = LANGUAGES.flatMap((language) => [
    { scheme: "file", language },
    { scheme: "untitled", language },
  ]);
  const watcher = vscode.workspace.createFileSystemWatcher("**/*.{module,sknd,tensor,ir,nem}");
  client = new LanguageClient(
    "lamella",
    "Lamella",
    { command, args: ["lsp"] },
    { documentSelector: selector, synchronize: { fileEvents: watcher } },
  );
  return client.start().catch((problem) => {
    vscode.window.showErrorMessage(
      `'${command} lsp' does not start: ${problem.message ?? problem}. Install it with: pip install 'lamella[lsp]'`,
    );
  });
}

async function restart() {
  await client?.dispose();
  await start();
}

function activate(context) {
  context.subscriptions.push(vscode.commands.registerCommand("lamella.restart", restart));
  return start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
